"""Parts of all heads: embedding, readout, losses and correct predictions from logits.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, App. A, and their
published runs. Embeddings start at N(0, 0.02^2), unscaled, without positions, followed directly by dropout.
The readout is Linear, ReLU, Linear; two classes share one logit. Dropout around the first Linear is that of
their other paper, On the Design Space Between Transformers and Recursive Neural Nets, and is off elsewhere.
"""

from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.layers.batch_parts import predictions_in_batch
from trainables.layers.dropout import KeyedDropout
from trainables.layers.linear import Linear, Vector
from trainables.layers.packing import put_rows
from trainables.layers.tokens import batch_places
from trainables.metrics import Metric
from trainables.recurrence.pass_records import record_answers
from trainables.settings import ModelSettings
from trainables.types import NOT_ASKED, Batch, Encoded, Output, TaskShape, sum_dtype

EMBEDDING_STD = 0.02
ACCURACY_WHOLE = Metric(
    "accuracy_whole",
    "max",
    low=0.0,
    high=1.0,
    meaning="share of examples with every answer right",
    shown=("table",),
)
"""Metric computed by `TargetPositions.output`."""


class Readout(nn.Module):
    """Map of states to logits: dropout, Linear, ReLU, dropout, Linear."""

    def __init__(self, inputs: int, width: int, logits: int, dropout: float) -> None:
        super().__init__()
        self.inner = Linear(inputs, width)
        self.outer = Linear(width, logits)
        self.inner_dropout = KeyedDropout(dropout)
        self.outer_dropout = KeyedDropout(dropout)

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N C"]:
        """Return the logits of all predictions of the batch."""
        place = predictions_in_batch(x.shape[0], x.device)
        hidden_states = F.relu(self.inner(self.inner_dropout(x, place)))
        logits: Tensor = self.outer(self.outer_dropout(hidden_states, place))
        return logits


class TokenModel(nn.Module):
    """Base of classifiers: an encoder between an embedding and a readout of `features` encoder widths."""

    def __init__(self, encoder: nn.Module, config: ModelSettings, shape: TaskShape, features: int) -> None:
        super().__init__()
        self.embedding = Vector(shape.vocabulary_size, config.width, std=EMBEDDING_STD)
        self.embedding_dropout = KeyedDropout(config.dropout)
        self.encoder = encoder
        self.readout = Readout(
            features * config.width, config.width, shape.num_logits, config.readout_dropout
        )

    def encoder_inputs(self, batch: Batch) -> tuple[Int[Tensor, "M S"], Bool[Tensor, "M S"]]:
        """Return the sequences that the encoder reads, and their mask."""
        return batch.tokens, batch.mask

    def embed(self, tokens: Int[Tensor, "N S"]) -> Float[Tensor, "N S D"]:
        """Return the embedded input of the encoder."""
        return embed_tokens(tokens, self.embedding, self.embedding_dropout)


def embed_tokens(tokens: Int[Tensor, "N S"], table: Vector, dropout: KeyedDropout) -> Float[Tensor, "N S D"]:
    """Return the embeddings of `tokens` from `table`, with dropout."""
    x: Tensor = dropout(F.embedding(tokens, table()), batch_places(tokens))
    return x


@dataclass(frozen=True)
class Prediction:
    """Predictions from logits, and their losses."""

    loss: Float[Tensor, " N"]
    """Cross-entropy in nats."""
    most_probable: Int[Tensor, " N"]
    """The most probable class."""
    uniform: Float[Tensor, " N"]
    """Cross-entropy against the uniform distribution over classes, in nats."""


def predict(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> Prediction:
    """Return loss and most probable class of each prediction.

    Args:
        logits: Logits of all classes, or of class 1 of two as a single column.
        labels: Correct classes.
    """
    if logits.shape[1] == 1:
        logit = logits[:, 0]
        loss = F.binary_cross_entropy_with_logits(logit, labels.to(logit.dtype), reduction="none")
        mean, correct_logit = logit / 2, logit * labels
        most_probable = (logit > 0).to(labels.dtype)
        record_answers(most_probable)
        return Prediction(loss, most_probable, loss + correct_logit - mean)
    loss = F.cross_entropy(logits, labels, reduction="none")
    correct_logit = logits.gather(1, labels[:, None]).squeeze(1)
    most_probable = logits.argmax(1)
    record_answers(most_probable)
    # loss + right is the log-sum-exp of the logits, which need not be computed again.
    return Prediction(loss, most_probable, loss + correct_logit - logits.mean(1))


@dataclass(frozen=True)
class TargetPositions:
    """Positions of N padded rows at which predictions are made, K in total."""

    mask: Bool[Tensor, "N S"]
    """True where a prediction is made."""

    @classmethod
    def of_labels(cls, labels: Int[Tensor, "N S"]) -> "TargetPositions":
        """Build from `labels`: predictions are made at labelled positions."""
        return cls(labels != NOT_ASKED)

    @cached_property
    def places(self) -> Int[Tensor, " K"]:
        """Indices of the predicted positions in the flattened rows."""
        return self.mask.flatten().nonzero().squeeze(1)

    @cached_property
    def counts(self) -> Int[Tensor, " N"]:
        """Number of predictions in each row."""
        return self.mask.sum(1)

    def rows(self, values: Float[Tensor, " K"]) -> Float[Tensor, "N S"]:
        """Return rows with the value of each prediction at its position and zero at other positions."""
        return put_rows(values, self.places, self.mask.numel()).view(self.mask.shape)

    def mean(self, values: Float[Tensor, " K"]) -> Float[Tensor, " N"]:
        """Average `values`, one per prediction, over the predictions of each row."""
        return self.rows(values).sum(1) / self.counts

    def output(
        self, logits: Float[Tensor, "K C"], labels: Int[Tensor, "N S"], encoded: Encoded
    ) -> tuple[Output, Float[Tensor, "N S"]]:
        """Return losses and hits of each row, and a value per position: 1 where the prediction is correct.

        The share `accuracy_whole` of a row is 1 if all its predictions are correct.

        Args:
            logits: Logits of all predictions, (predictions, classes).
            labels: Labels of all positions, (batch, length).
            encoded: Output of the encoder.
        """
        labels = labels.flatten().index_select(0, self.places)
        predicted = predict(logits.to(sum_dtype(logits.dtype)), labels)
        hits = self.rows((predicted.most_probable == labels).to(predicted.loss.dtype))
        output = Output(
            loss=self.mean(predicted.loss),
            hits=hits.sum(1),
            counts=self.counts.to(hits.dtype),
            encoded=encoded,
            uniform=self.mean(predicted.uniform),
            shares={"accuracy_whole": (hits.sum(1) == self.counts).to(hits)},
        )
        return output, hits


def uncertainty(logits: Float[Tensor, "N C"]) -> Float[Tensor, " N"]:
    """Return the cross-entropy (nats) of each sample's logits against the class they make most probable."""
    if logits.shape[1] == 1:
        return F.softplus(-logits[:, 0].abs())
    return logits.logsumexp(1) - logits.amax(1)
