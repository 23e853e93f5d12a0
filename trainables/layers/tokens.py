"""The tokens of a batch that are being worked on, with what attention and dropout must know of each."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainables.layers.packing import Packing
from trainables.layers.positions import Rotation, rotations

ROW_STRIDE = 1 << 16


@dataclass(frozen=True)
class Tokens:
    """M packed tokens: how they lie in rows, where they come from, how their queries and keys turn."""

    packing: Packing
    place: Int[Tensor, " M"]
    """`row * ROW_STRIDE + position` in the full batch; stays with a token when others leave."""
    query_rotation: Rotation
    key_rotation: Rotation

    @classmethod
    def of(cls, packing: Packing, head_width: int, dtype: torch.dtype) -> "Tokens":
        """All tokens of a full batch, positions counted from 0 in each row."""
        place = packed_places(packing)
        query, key = rotations(packing.column, packing.width, head_width, dtype)
        return cls(packing, place, query, key)

    def select(self, tokens: Int[Tensor, " K"], packing: Packing) -> "Tokens":
        """Only `tokens`, packed anew by `packing`."""
        return Tokens(
            packing,
            self.place.index_select(0, tokens),
            self.query_rotation.select(tokens),
            self.key_rotation.select(tokens),
        )


@dataclass(frozen=True)
class KeysValues:
    """What queries look at: turned keys, and values, of whole rows."""

    keys: Float[Tensor, "L H E"]
    values: Float[Tensor, "L H E"]
    packing: Packing


def packed_places(packing: Packing) -> Int[Tensor, " M"]:
    """Place of every packed token of a full batch."""
    return packing.row * ROW_STRIDE + packing.column


def batch_places(padded: Int[Tensor, "N S"]) -> Int[Tensor, "N S"]:
    """Place of every entry of a padded batch, before START and END are added."""
    rows, columns = (torch.arange(size, device=padded.device) for size in padded.shape)
    return rows[:, None] * ROW_STRIDE + columns
