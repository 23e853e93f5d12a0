"""What all heads share: embedding, readout and the judgement of logits.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, App. A, and their
published runs: embeddings start at N(0, 0.02^2), unscaled, without positions, dropout right after them; the
readout is Linear, ReLU, Linear; two classes share one logit. Dropout around the first Linear is that of their
other paper, On the Design Space Between Transformers and Recursive Neural Nets, and off elsewhere.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.layers.dropout import KeyedDropout
from trainables.layers.linear import Linear, Vector
from trainables.layers.tokens import batch_places
from trainables.settings import ModelSettings
from trainables.types import TaskShape

EMBEDDING_STD = 0.02


class Readout(nn.Module):
    """Drop, Linear, ReLU, Drop, Linear."""

    def __init__(self, inputs: int, width: int, logits: int, dropout: float) -> None:
        super().__init__()
        self.inner = Linear(inputs, width)
        self.outer = Linear(width, logits)
        self.inner_dropout = KeyedDropout(dropout)
        self.outer_dropout = KeyedDropout(dropout)

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N C"]:
        """Logits."""
        place = torch.arange(x.shape[0], device=x.device)
        hidden = F.relu(self.inner(self.inner_dropout(x, place)))
        logits: Tensor = self.outer(self.outer_dropout(hidden, place))
        return logits


class TokenModel(nn.Module):
    """Any encoder between an embedding and a readout of `features` encoder widths."""

    def __init__(self, encoder: nn.Module, config: ModelSettings, shape: TaskShape, features: int) -> None:
        super().__init__()
        self.embedding = Vector(shape.vocabulary_size, config.width, std=EMBEDDING_STD)
        self.embedding_dropout = KeyedDropout(config.dropout)
        self.encoder = encoder
        logits = num_logits(shape.num_classes)
        self.readout = Readout(features * config.width, config.width, logits, config.readout_dropout)

    def embed(self, tokens: Int[Tensor, "N S"]) -> Float[Tensor, "N S D"]:
        """What the encoder reads."""
        x: Tensor = self.embedding_dropout(F.embedding(tokens, self.embedding()), batch_places(tokens))
        return x


def num_logits(num_classes: int) -> int:
    """Logits that tell `num_classes` apart."""
    return 1 if num_classes == 2 else num_classes


@dataclass(frozen=True)
class Judged:
    """What logits are worth."""

    loss: Float[Tensor, " N"]
    """Cross-entropy in nats."""
    guess: Int[Tensor, " N"]
    """The most probable class."""
    uniform: Float[Tensor, " N"]
    """Cross-entropy against all classes alike, in nats."""


def judge(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> Judged:
    """Each prediction by itself. A single column is the logit of class 1 of two."""
    if logits.shape[1] == 1:
        logit = logits[:, 0]
        loss = F.binary_cross_entropy_with_logits(logit, labels.to(logit.dtype), reduction="none")
        mean, right = logit / 2, logit * labels
        return Judged(loss, (logit > 0).to(labels.dtype), loss + right - mean)
    loss = F.cross_entropy(logits, labels, reduction="none")
    right = logits.gather(1, labels[:, None]).squeeze(1)
    # loss + right is the logarithm of the sum, which need not be taken again.
    return Judged(loss, logits.argmax(1), loss + right - logits.mean(1))


def uncertainty(logits: Float[Tensor, "N C"]) -> Float[Tensor, " N"]:
    """Cross-entropy in nats of each sample if its most probable class were the answer."""
    if logits.shape[1] == 1:
        return F.softplus(-logits[:, 0].abs())
    return logits.logsumexp(1) - logits.amax(1)
