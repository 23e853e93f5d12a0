"""What a decoder remembers of answers it is writing, so that each new token costs one token's work.

Hypotheses are rows; those of one input stand side by side, equally many for each, and share what is kept of
the input. All hypotheses have the same length, so nothing is padded.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trainables.layers.packing import Packing
from trainables.layers.positions import NoRotation, rotations
from trainables.layers.tokens import KeysValues, Tokens


@dataclass(frozen=True)
class Layer:
    """Keys and values of all tokens so far as one layer saw them; for halting by means, sums over them."""

    keys: Float[Tensor, "R T H E"] | None = None
    values: Float[Tensor, "R T H E"] | None = None
    before: Float[Tensor, "R D"] | None = None
    """Sum of the states that went into the layer."""
    after: Float[Tensor, "R D"] | None = None
    """Sum of the states that the layer proposed, those of tokens that had halted before as they were."""

    def with_token(self, keys: Float[Tensor, "R H E"], values: Float[Tensor, "R H E"]) -> "Layer":
        """One more token in each row."""
        return replace(self, keys=_longer(self.keys, keys), values=_longer(self.values, values))

    def with_sums(self, before: Float[Tensor, "R D"] | None, after: Float[Tensor, "R D"] | None) -> "Layer":
        """New sums."""
        return replace(self, before=before, after=after)

    @property
    def seen(self) -> KeysValues:
        """What the last token of each row looks at."""
        assert self.keys is not None
        assert self.values is not None
        rows, length = self.keys.shape[:2]
        return KeysValues(self.keys.flatten(0, 1), self.values.flatten(0, 1), _even(rows, length, self.keys))

    def select(self, rows: Int[Tensor, " K"]) -> "Layer":
        """Some of the rows, in any order and number."""
        parts = (self.keys, self.values, self.before, self.after)
        return Layer(*(None if part is None else part.index_select(0, rows) for part in parts))


@dataclass(frozen=True)
class Past:
    """N inputs with `width` hypotheses each, R = N * `width` rows, of `length` tokens."""

    recalled: tuple[KeysValues, ...]
    """What the tokens of each layer look at of the inputs; a single one for layers with equal weights."""
    layers: tuple[Layer, ...]
    width: int
    length_max: int
    """Most tokens that an answer can have."""
    length: int = 0

    def tokens(self, head_width: int, x: Float[Tensor, "R D"]) -> Tokens:
        """The next token of each row, whose queries and keys turn by where it is."""
        position = torch.full(x.shape[:1], self.length, device=x.device)
        # Turned as in a row of full length: where it is centred must not change from token to token.
        query, key = rotations(position, self.length_max, head_width, x.dtype)
        return replace(self.unturned(x), query_rotation=query, key_rotation=key, position=None)

    def unturned(self, x: Float[Tensor, "R D"]) -> Tokens:
        """The next token of each row, of a model that turns neither queries nor keys."""
        rows = torch.arange(x.shape[0], device=x.device)
        turn = NoRotation.of(x.shape[0], x.dtype)
        return Tokens(
            _even(x.shape[0], 1, x),
            rows,
            turn,
            turn,
            recalled=self.recalled[0],
            recallers=_even(x.shape[0] // self.width, self.width, x),
            position=torch.full_like(rows, self.length),
        )

    def reorder(self, rows: Int[Tensor, " R"]) -> "Past":
        """Each row continues what the row at `rows`, one of the same input, has written."""
        return replace(self, layers=tuple(layer.select(rows) for layer in self.layers))

    def keep(self, inputs: Int[Tensor, " K"]) -> "Past":
        """Only some inputs, in their order, with all their hypotheses."""
        across = torch.arange(self.width, device=inputs.device)
        rows = (inputs[:, None] * self.width + across).flatten()
        recalled = tuple(each.select_rows(inputs) for each in self.recalled)
        return replace(self.reorder(rows), recalled=recalled)


def _longer(so_far: Tensor | None, new: Tensor) -> Tensor:
    return new[:, None] if so_far is None else torch.cat((so_far, new[:, None]), 1)


def _even(rows: int, length: int, like: Tensor) -> Packing:
    counts = torch.full((rows,), length, device=like.device)
    row = torch.arange(rows * length, device=like.device) // length
    return Packing(row, counts, length)


class WritingDecoder(nn.Module):
    """A decoder of `num_layers` layers that can `extend` what it has written by a token."""

    num_layers: int

    def recalled(self, memory: Float[Tensor, "N P D"], memory_mask: Bool[Tensor, "N P"]) -> list[KeysValues]:
        """What tokens look at of the inputs, layer by layer, or once for layers with equal weights."""
        raise NotImplementedError

    def begin(
        self, memory: Float[Tensor, "N P D"], memory_mask: Bool[Tensor, "N P"], width: int, length_max: int
    ) -> Past:
        """Ready to write `width` answers of at most `length_max` tokens to each input, token by token."""
        recalled = tuple(self.recalled(memory, memory_mask))
        return Past(recalled, (Layer(),) * self.num_layers, width, length_max)
