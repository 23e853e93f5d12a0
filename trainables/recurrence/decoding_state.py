"""State that a decoder keeps between tokens of an answer, so that a new token costs one token's FLOPs.

Hypotheses are rows. The hypotheses of one input are adjacent, equally many for each input, and share the keys
and values of the input. All hypotheses have the same length, so there is no padding.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trainables.layers.packing import Packing
from trainables.layers.tokens import KeysValues, Tokens
from trainables.layers.xpos import rotation_table


@dataclass(frozen=True)
class LayerCache:
    """Keys and values of all tokens so far in one layer; with halting by means, sums over their states."""

    both: Float[Tensor, "R T 2 H E"] | None = None
    before: Float[Tensor, "R D"] | None = None
    """Sum of the input states of the layer."""
    after: Float[Tensor, "R D"] | None = None
    """Sum of the states that the layer proposed; for tokens that halted before, of their final states."""

    def with_token(self, new_keys_values: KeysValues) -> "LayerCache":
        """Return the cache with one more token in each row."""
        new = new_keys_values.both[:, None]
        return replace(self, both=new if self.both is None else torch.cat((self.both, new), 1))

    def with_sums(
        self, sums_before: Float[Tensor, "R D"] | None, sums_after: Float[Tensor, "R D"] | None
    ) -> "LayerCache":
        """Return the cache with other sums of states."""
        return replace(self, before=sums_before, after=sums_after)

    @property
    def keys_values(self) -> KeysValues:
        """Keys and values of all tokens so far, which the last token of each row attends to."""
        assert self.both is not None
        return KeysValues(
            self.both.flatten(0, 1), _equal_rows_packing(self.both.shape[0], self.both.shape[1], self.both)
        )

    def select(self, rows: Int[Tensor, " K"]) -> "LayerCache":
        """Return the cache of the given `rows`; these may be in any order and occur repeatedly."""
        parts = (self.both, self.before, self.after)
        return LayerCache(*(None if part is None else part.index_select(0, rows) for part in parts))


@dataclass(frozen=True)
class DecodingState:
    """State of N inputs with `width` hypotheses each (R = N * `width` rows) of `length` tokens."""

    cross_kv: tuple[KeysValues, ...]
    """Keys and values of the inputs for each layer; a single entry for layers with equal weights."""
    layers: tuple[LayerCache, ...]
    width: int
    length_max: int
    """Maximum number of tokens of an answer."""
    length: int = 0

    def tokens(self, head_width: int, x: Float[Tensor, "R D"]) -> Tokens:
        """Return the next token of each row, with queries and keys rotated by its position."""
        # Rotations are those of a row of full length, so that their centre is the same for all tokens.
        table = rotation_table(self.length_max, head_width, x.dtype, x.device)
        return replace(self.unrotated(x), rotations=table)

    def unrotated(self, x: Float[Tensor, "R D"]) -> Tokens:
        """Return the next token of each row for a model without rotary positions."""
        rows = torch.arange(x.shape[0], device=x.device)
        return Tokens(
            _equal_rows_packing(x.shape[0], 1, x),
            rows,
            torch.full_like(rows, self.length),
            cross_kv=self.cross_kv[0],
            cross_queries=_equal_rows_packing(x.shape[0] // self.width, self.width, x),
        )

    def reorder(self, rows: Int[Tensor, " R"]) -> "DecodingState":
        """Return the state in which row i continues the hypothesis of row `rows[i]` of the same input."""
        return replace(self, layers=tuple(layer.select(rows) for layer in self.layers))

    def keep(self, inputs: Int[Tensor, " K"]) -> "DecodingState":
        """Return the state with only the hypotheses of `inputs`, in this order."""
        columns = torch.arange(self.width, device=inputs.device)
        rows = (inputs[:, None] * self.width + columns).flatten()
        kept_inputs = np.asarray(inputs.tolist())
        cross_kv = tuple(keys_values.select_rows(kept_inputs) for keys_values in self.cross_kv)
        return replace(self.reorder(rows), cross_kv=cross_kv)


def _equal_rows_packing(rows: int, length: int, example: Tensor) -> Packing:
    return Packing.of_counts(np.full(rows, length), example.device)


class StepwiseDecoder(nn.Module):
    """A decoder of `num_layers` layers that can `extend` its answers token by token."""

    num_layers: int

    def cross_kv(self, memory: Float[Tensor, "N P D"], memory_mask: Bool[Tensor, "N P"]) -> list[KeysValues]:
        """Return keys and values of the inputs for each layer; one entry if layers share weights."""
        raise NotImplementedError

    def begin(
        self, memory: Float[Tensor, "N P D"], memory_mask: Bool[Tensor, "N P"], width: int, length_max: int
    ) -> DecodingState:
        """Return the state before the first token.

        Args:
            memory: Encoded inputs, (inputs, positions, width).
            memory_mask: True at valid positions, (inputs, positions).
            width: Number of hypotheses for each input.
            length_max: Maximum number of tokens of an answer.
        """
        cross_kv = tuple(self.cross_kv(memory, memory_mask))
        return DecodingState(cross_kv, (LayerCache(),) * self.num_layers, width, length_max)
