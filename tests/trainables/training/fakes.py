"""A model small enough to compute by hand, with everything the loop reads: dropout, ponder, depth."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.layers.dropout import KeyedDropout
from trainables.types import Batch, Encoded, Output


class Bag(nn.Module):
    """Mean of embeddings, dropout, one linear layer; thinks as long as its inputs are."""

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
        live = batch.mask[..., None].to(self.embedding.dtype)
        states = self.embedding[batch.tokens] * live
        pooled = states.sum(1) / live.sum(1)
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
    """Random tokens, lengths from 1 to `width`, random labels."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    lengths = draw(1, width + 1, rows)
    mask = torch.arange(width) < lengths[:, None]
    return Batch(draw(0, vocabulary_size, rows, width) * mask, mask, draw(0, classes, rows))
