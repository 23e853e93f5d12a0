"""What all heads share: embedding, readout and the judgement of logits.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, App. A, and their
published runs: embeddings start at N(0, 0.02^2), unscaled, without positions, dropout right after them; the
readout is Linear, ReLU, Linear; two classes share one logit.
"""

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


def judge(
    logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]
) -> tuple[Float[Tensor, " N"], Int[Tensor, " N"]]:
    """Cross-entropy in nats and the most probable class of each sample."""
    if logits.shape[1] == 1:
        logit = logits[:, 0]
        loss = F.binary_cross_entropy_with_logits(logit, labels.to(logit.dtype), reduction="none")
        return loss, (logit > 0).to(labels.dtype)
    return F.cross_entropy(logits, labels, reduction="none"), logits.argmax(1)
