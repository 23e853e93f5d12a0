"""A model small enough to compute by hand, with every output that training reads: dropout, ponder, depth."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.layers.dropout import KeyedDropout
from trainables.protocol import Job
from trainables.seeds import derive
from trainables.training.config import TrainConfig
from trainables.types import Batch, Encoded, Output


class BagOfWords(nn.Module):
    """Mean of embeddings, dropout, one linear layer; its depth is the length of the input."""

    def __init__(
        self, *, vocabulary_size: int = 8, classes: int = 3, width: int = 4, dropout: float = 0.0
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embedding = nn.Parameter(torch.randn(vocabulary_size, width, generator=generator))
        self.out = nn.Parameter(torch.randn(width, classes, generator=generator))
        self.halt = nn.Parameter(torch.randn(width, generator=generator))
        self.dropout = KeyedDropout(dropout)

    def forward(self, batch: Batch) -> Output:
        is_token = batch.mask[..., None].to(self.embedding.dtype)
        states = self.embedding[batch.tokens] * is_token
        pooled = states.sum(1) / is_token.sum(1)
        pooled = self.dropout(pooled, torch.arange(len(pooled)))
        logits = pooled @ self.out
        lengths = batch.mask.sum(1).to(pooled.dtype)
        encoded = Encoded(
            states=states,
            pooled=pooled,
            depth=lengths,
            ponder=torch.sigmoid(pooled @ self.halt),
            computed=lengths + 1,
            bound=torch.full_like(lengths, 10),
        )
        return Output(
            loss=F.cross_entropy(logits, batch.labels, reduction="none"),
            hits=(logits.argmax(-1) == batch.labels).to(pooled.dtype),
            counts=torch.ones_like(lengths),
            encoded=encoded,
        )


def some_batch(
    seed: int = 0, *, rows: int = 5, width: int = 6, vocabulary_size: int = 8, classes: int = 3
) -> Batch:
    """Return random tokens, lengths from 1 to `width`, and random labels."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    lengths = draw(1, width + 1, rows)
    mask = torch.arange(width) < lengths[:, None]
    return Batch(draw(0, vocabulary_size, rows, width) * mask, mask, draw(0, classes, rows))


class FakeWork:
    """A step costs 10 FLOPs, and a sample its number of tokens times the share of computed layers."""

    step_flops = 10.0

    def sample_flops(self, lengths: np.ndarray, shares: np.ndarray) -> float:
        return float(np.mean(lengths * shares))


class FakeSources:
    """Replacement of training's data and model: fixed batches, and a log of the opened splits."""

    opened_splits: ClassVar[list[str]] = []

    def __init__(self, job: Job, config: TrainConfig, device: torch.device) -> None:
        self.job = job
        self.config = config
        self.device = device
        self.digests: dict[str, str] = {}

    def model(self) -> BagOfWords:
        self.opened_splits.clear()
        return BagOfWords(width=self.job.settings["model"].get("width", 4), dropout=0.2)

    def work(self) -> "FakeWork":
        return FakeWork()

    def train_batch(self, step: int) -> Batch:
        self.opened_splits.append("train")
        return some_batch(derive(self.job.seed, "data", step) % 1000, rows=self.config.batch_size)

    epoch: ClassVar[int | None] = 640

    def batches(self, split: str) -> Iterator[Batch]:
        self.opened_splits.append(split)
        self.digests[split] = f"digest of {split}"
        for part in range(2):
            yield some_batch(derive(0, split, part) % 1000, rows=20)
