"""An answer of any length, generated token by token by a decoder that attends to the full encoded input.

Source: encoder and decoder as in Vaswani et al., Attention Is All You Need, s. 3, with the recurrent layers
and the dynamic halting of Tan et al., Sparse Universal Transformer. In training the decoder reads the correct
answer, shifted by one token and preceded by the end token. Input and answer share embeddings if the task has
one vocabulary for both.

Difference from the second source: the loss of a sample is the mean over its tokens, the end token included,
so that samples have equal weight. The published runs sum over the tokens of a batch.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.heads._parts import ACCURACY_WHOLE, EMBEDDING_STD, Readout, TargetPositions, embed_tokens
from trainables.layers.dropout import KeyedDropout
from trainables.layers.linear import Vector
from trainables.layers.packing import take
from trainables.metrics import Metric
from trainables.settings import ModelSettings
from trainables.types import NOT_ASKED, Batch, Encoded, Output, TaskShape

FEATURES = 1
"""Size of the readout's input, in decoder widths."""
metrics = (
    ACCURACY_WHOLE,
    *(Metric(f"depth_{part}", unit="layers", low=0.0, shown=()) for part in ("encoder", "decoder")),
)


class Embedding(nn.Module):
    """Embedding of answer tokens for the decoder, with dropout."""

    def __init__(self, table: Vector, dropout: float) -> None:
        super().__init__()
        self.embedding = table
        self.dropout = KeyedDropout(dropout)

    def forward(self, tokens: Int[Tensor, "N T"]) -> Float[Tensor, "N T D"]:
        """Return the vectors of `tokens`."""
        return embed_tokens(tokens, self.embedding, self.dropout)


def commonest_tokens(labels: list[Int[Tensor, "_ _"]]) -> float:
    """Return the accuracy of always predicting, at each position of an answer, its most common token.

    No rule that uses neither input nor answer is better, so this is the floor of accuracy by tokens.
    """
    longest = max(answers.shape[1] for answers in labels)
    table = torch.cat(
        [F.pad(answers, (0, longest - answers.shape[1]), value=NOT_ASKED) for answers in labels]
    ).cpu()
    columns = [column[column != NOT_ASKED] for column in table.unbind(1)]
    hits = sum(int(torch.bincount(column).max()) for column in columns if len(column))
    return hits / sum(len(column) for column in columns)


class SequenceModel(nn.Module):
    """An encoder of inputs, a decoder of answers, and the embeddings of both."""

    floor = staticmethod(commonest_tokens)

    def __init__(
        self, encoder: nn.Module, decoder: nn.Module, config: ModelSettings, shape: TaskShape
    ) -> None:
        super().__init__()
        assert shape.end_id is not None, "a task with decoded answers must have an end_id"
        self.shape = shape
        self.end_id = shape.end_id
        self.embedding = Vector(shape.vocabulary_size, config.width, std=EMBEDDING_STD)
        self.embedding_dropout = KeyedDropout(config.dropout)
        self.encoder = encoder
        table = self.embedding
        if not shape.shared_vocabulary:
            table = Vector(shape.num_classes, config.width, std=EMBEDDING_STD)
        self.answer = Embedding(table, config.dropout)
        self.decoder = decoder
        is_tied = getattr(config, "tied_output", False)
        self.readout = None
        if not is_tied:
            self.readout = Readout(config.width, config.width, shape.num_classes, config.readout_dropout)

    def forward(self, batch: Batch) -> Output:
        """Return loss and hits of each answer, with each token predicted from the correct earlier tokens."""
        encoded, memory_mask = self.encode(batch.tokens, batch.mask)
        targets = TargetPositions.of_labels(batch.labels)
        decoded: Encoded = self.decoder(
            self.answer(self.decoder_inputs(batch.labels)), targets.mask, encoded.states, memory_mask
        )
        logits = self.logits(take(decoded.states.flatten(0, 1), targets.places))
        output, _ = targets.output(logits, batch.labels, _add_costs(encoded, decoded))
        depths = {"depth_encoder": encoded.depth, "depth_decoder": decoded.depth}
        return replace(output, shares={**output.shares, **depths})

    def encode(
        self, tokens: Int[Tensor, "N S"], mask: Bool[Tensor, "N S"]
    ) -> tuple[Encoded, Bool[Tensor, "N P"]]:
        """Return the encoder output that the decoder attends to, and its mask.

        START and END, if added by the encoder, count as tokens.
        """
        x = embed_tokens(tokens, self.embedding, self.embedding_dropout)
        encoded: Encoded = self.encoder(x, mask)
        positions = encoded.states.shape[1]
        lengths = mask.sum(1) + (positions - tokens.shape[1])
        return encoded, torch.arange(positions, device=tokens.device) < lengths[:, None]

    def decoder_inputs(self, labels: Int[Tensor, "N T"]) -> Int[Tensor, "N T"]:
        """Return the decoder input for `labels`: the end token, then the labels shifted by one position."""
        previous_tokens = F.pad(labels[:, :-1], (1, 0), value=self.end_id)
        return previous_tokens.masked_fill(previous_tokens == NOT_ASKED, self.end_id)

    def logits(self, states: Float[Tensor, "M D"]) -> Float[Tensor, "M C"]:
        """Return the logits of the answer token that follows each state."""
        if self.readout is None:
            return F.linear(states, self.answer.embedding())
        logits: Tensor = self.readout(states)
        return logits


def _add_costs(encoded: Encoded, decoded: Encoded) -> Encoded:
    """Return the decoder's states, with summed depths and costs of encoder and decoder."""
    parts = [part.auxiliary for part in (encoded, decoded) if part.auxiliary is not None]
    return Encoded(
        states=decoded.states,
        pooled=decoded.pooled,
        depth=encoded.depth + decoded.depth,
        ponder=encoded.ponder + decoded.ponder,
        computed=encoded.computed + decoded.computed,
        bound=encoded.bound + decoded.bound,
        auxiliary=sum(parts[1:], parts[0]) if parts else None,
    )
