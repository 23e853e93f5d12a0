"""What all heads share: embedding, readout and the judgement of logits.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, App. A, and their
published runs: embeddings start at N(0, 0.02^2), unscaled, without positions, dropout right after them; the
readout is Linear, ReLU, Linear; two classes share one logit.
"""

from dataclasses import dataclass

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
    """Linear, ReLU, Linear to one logit a class, or a single one for two classes."""

    def __init__(self, inputs: int, width: int, num_classes: int) -> None:
        super().__init__()
        self.inner = Linear(inputs, width)
        self.outer = Linear(width, num_logits(num_classes))

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N C"]:
        """Logits."""
        logits: Tensor = self.outer(F.relu(self.inner(x)))
        return logits


class TokenModel(nn.Module):
    """Any encoder between an embedding and a readout of `features` encoder widths."""

    def __init__(self, encoder: nn.Module, config: ModelSettings, shape: TaskShape, features: int) -> None:
        super().__init__()
        self.embedding = Vector(shape.vocabulary_size, config.width, std=EMBEDDING_STD)
        self.embedding_dropout = KeyedDropout(config.dropout)
        self.encoder = encoder
        self.readout = Readout(features * config.width, config.width, shape.num_classes)

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
