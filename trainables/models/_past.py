"""What a decoder remembers of answers it is writing, so that each new token costs one token's work.

Hypotheses are rows; those of one input stand side by side, equally many for each, and share what is kept of
the input. All hypotheses have the same length, so nothing is padded.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trainables.layers.block import Block
from trainables.layers.packing import Packing
from trainables.layers.positions import rotations
from trainables.layers.tokens import KeysValues, Tokens
from trainables.models._answers import packed


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

    def with_sums(self, before: Float[Tensor, "R D"], after: Float[Tensor, "R D"]) -> "Layer":
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
    length: int = 0

    @classmethod
    def begin(
        cls,
        blocks: list[Block],
        num_layers: int,
        memory: tuple[Float[Tensor, "N P D"], Bool[Tensor, "N P"]],
        width: int,
        length_max: int,
    ) -> "Past":
        """Nothing written yet, `width` times for each input; no answer grows beyond `length_max` tokens."""
        states, packing = packed(*memory)
        recalled = []
        for block in blocks:
            assert block.recall is not None
            recalled.append(block.recall.offer(states, packing))
        return cls(tuple(recalled), (Layer(),) * num_layers, width, length_max)

    def tokens(self, head_width: int, x: Float[Tensor, "R D"]) -> Tokens:
        """The next token of each row."""
        rows = torch.arange(x.shape[0], device=x.device)
        # Turned as in a row of full length: where it is centred must not change from token to token.
        position = torch.full_like(rows, self.length)
        query, key = rotations(position, self.length_max, head_width, x.dtype)
        recallers = _even(x.shape[0] // self.width, self.width, x)
        return Tokens(
            _even(x.shape[0], 1, x), rows, query, key, recalled=self.recalled[0], recallers=recallers
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
