"""What a decoder keeps between tokens of an answer, so that a new token costs one token's FLOPs.

Hypotheses are rows; those of one input stand side by side, equally many for each, and share what is kept of
the input. All hypotheses have the same length, so nothing is padded.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trainables.layers.packing import Packing
from trainables.layers.tokens import KeysValues, Tokens
from trainables.layers.xpos import NoRotation, rotations


@dataclass(frozen=True)
class LayerCache:
    """Keys and values of all tokens so far in one layer; for halting by means, sums over their states."""

    keys: Float[Tensor, "R T H E"] | None = None
    values: Float[Tensor, "R T H E"] | None = None
    before: Float[Tensor, "R D"] | None = None
    """Sum of the states that went into the layer."""
    after: Float[Tensor, "R D"] | None = None
    """Sum of the states that the layer proposed, of tokens halted before of their final states."""

    def with_token(self, made: KeysValues) -> "LayerCache":
        """One more token in each row, with these."""
        return replace(self, keys=_longer(self.keys, made.keys), values=_longer(self.values, made.values))

    def with_sums(
        self, before: Float[Tensor, "R D"] | None, after: Float[Tensor, "R D"] | None
    ) -> "LayerCache":
        """New sums."""
        return replace(self, before=before, after=after)

    @property
    def seen(self) -> KeysValues:
        """Keys and values that the last token of each row attends to."""
        assert self.keys is not None
        assert self.values is not None
        rows, length = self.keys.shape[:2]
        return KeysValues(self.keys.flatten(0, 1), self.values.flatten(0, 1), _even(rows, length, self.keys))

    def select(self, rows: Int[Tensor, " K"]) -> "LayerCache":
        """Some of the rows, in any order and number."""
        parts = (self.keys, self.values, self.before, self.after)
        return LayerCache(*(None if part is None else part.index_select(0, rows) for part in parts))


@dataclass(frozen=True)
class DecodingState:
    """N inputs with `width` hypotheses each, R = N * `width` rows, of `length` tokens."""

    recalled: tuple[KeysValues, ...]
    """Keys and values of the inputs for each layer; a single entry for layers with equal weights."""
    layers: tuple[LayerCache, ...]
    width: int
    length_max: int
    """Most tokens that an answer can have."""
    length: int = 0

    def tokens(self, head_width: int, x: Float[Tensor, "R D"]) -> Tokens:
        """The next token of each row, with queries and keys rotated by its position."""
        position = torch.full(x.shape[:1], self.length, device=x.device)
        # Rotated as in a row of full length, so that the centre does not move from token to token.
        query, key = rotations(position, self.length_max, head_width, x.dtype)
        return replace(self.unrotated(x), query_rotation=query, key_rotation=key, position=None)

    def unrotated(self, x: Float[Tensor, "R D"]) -> Tokens:
        """The next token of each row, of a model without rotary positions."""
        rows = torch.arange(x.shape[0], device=x.device)
        rotation = NoRotation.of(rows, x.dtype)
        return Tokens(
            _even(x.shape[0], 1, x),
            rows,
            rotation,
            rotation,
            recalled=self.recalled[0],
            recallers=_even(x.shape[0] // self.width, self.width, x),
            position=torch.full_like(rows, self.length),
        )

    def reorder(self, rows: Int[Tensor, " R"]) -> "DecodingState":
        """Each row continues the hypothesis of the row at `rows`, one of the same input."""
        return replace(self, layers=tuple(layer.select(rows) for layer in self.layers))

    def keep(self, inputs: Int[Tensor, " K"]) -> "DecodingState":
        """Only some inputs, in their order, with all their hypotheses."""
        across = torch.arange(self.width, device=inputs.device)
        rows = (inputs[:, None] * self.width + across).flatten()
        recalled = tuple(each.select_rows(inputs) for each in self.recalled)
        return replace(self.reorder(rows), recalled=recalled)


def _longer(so_far: Tensor | None, new: Tensor) -> Tensor:
    return new[:, None] if so_far is None else torch.cat((so_far, new[:, None]), 1)


def _even(rows: int, length: int, like: Tensor) -> Packing:
    return Packing.of_counts(np.full(rows, length), like.device)


class StepwiseDecoder(nn.Module):
    """A decoder of `num_layers` layers that can `extend` its answers token by token."""

    num_layers: int

    def recalled(self, memory: Float[Tensor, "N P D"], memory_mask: Bool[Tensor, "N P"]) -> list[KeysValues]:
        """Keys and values of the inputs, layer by layer, or once for layers with equal weights."""
        raise NotImplementedError

    def begin(
        self, memory: Float[Tensor, "N P D"], memory_mask: Bool[Tensor, "N P"], width: int, length_max: int
    ) -> DecodingState:
        """Before the first token: `width` answers to each input, of at most `length_max` tokens."""
        recalled = tuple(self.recalled(memory, memory_mask))
        return DecodingState(recalled, (LayerCache(),) * self.num_layers, width, length_max)
