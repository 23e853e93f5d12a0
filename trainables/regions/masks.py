"""The keyed masks of `layers.dropout`, without the writes in place and the changes of type that fuse badly.

Each is hashed anew wherever it is used, in the kernel that drops: no mask is ever written.

Legend: M tokens, C columns, W = C / 2 words of 32 bits, each of two draws; B rows of T queries and K keys,
H heads.
"""

from typing import Final, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trainables.regions.compiling import region
from trainables.regions.rows import require_alike

MASK_LEVELS: Final = 1 << 16
"""Values of one draw: rates are multiples of its inverse."""
MIX_A: Final = 0x7FEB352D
MIX_B: Final = -2_073_254_261
"""Odd factors of the hash of 32 bits, one of each round."""
ODD_32: Final = -1_640_531_527
"""What numbers are multiplied by before they are hashed: 2^32 over the golden ratio."""


class ElementMask(NamedTuple):
    """What dropout leaves of the elements of tokens."""

    salt: Int[Tensor, " W"]
    """What places are hashed with."""
    levels: int
    scale: float
    """What is left is multiplied by this."""

    def keep(self, place: Int[Tensor, " M"], columns: int) -> Bool[Tensor, "M C"]:
        """Which elements of each token are kept, of so many."""
        # No region of its own: a layer that is not compiled compiles no part of itself.
        return _kept(place, self.salt, self.levels)[:, :columns]


class WeightMask(NamedTuple):
    """The same of attention weights."""

    salt: Int[Tensor, "H U"]
    """Of each head, for each pair of keys of a row; there may be more than are used."""
    levels: int
    scale: float

    def keep(self, place: Int[Tensor, "B T"], columns: Int[Tensor, " K"]) -> Bool[Tensor, "B H T K"]:
        """Which weights of each query are kept, over keys of these numbers."""
        salt = self.salt.index_select(1, columns // 2)
        words = _mixed(place.to(torch.int32)[:, None, :, None] ^ salt[:, None])
        draws = torch.where(columns % 2 == 0, *_draws(words))
        return draws >= self.levels - MASK_LEVELS // 2


def drop(x: Float[Tensor, "M C"], kept: ElementMask | None, place: Int[Tensor, " M"]) -> Float[Tensor, "M C"]:
    """`x` where a mask keeps it, scaled, and zero elsewhere."""
    if kept is None:
        return x
    require_alike(place.shape, x.shape[:1])
    return x * kept.keep(place, x.shape[1]).to(x.dtype) * kept.scale


@region
def drawn(place: Int[Tensor, " M"], salt: Int[Tensor, " W"], levels: int) -> Bool[Tensor, "M C"]:
    """Which elements of each token are kept."""
    return _kept(place, salt, levels)


def _kept(place: Int[Tensor, " M"], salt: Int[Tensor, " W"], levels: int) -> Bool[Tensor, "M C"]:
    low, high = _draws(_mixed(place.to(torch.int32)[:, None] ^ salt))
    return torch.stack((low, high), -1).flatten(1) >= levels - MASK_LEVELS // 2


def _draws(words: Int[Tensor, "*any"]) -> tuple[Int[Tensor, "*any"], Int[Tensor, "*any"]]:
    """The two signed draws of every hashed word."""
    low = torch.bitwise_right_shift(torch.bitwise_left_shift(words, 16), 16)
    return low, torch.bitwise_right_shift(words, 16)


def _mixed(word: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
    word = word ^ (torch.bitwise_right_shift(word, 16) & 0xFFFF)
    word = word * MIX_A
    word = word ^ (torch.bitwise_right_shift(word, 15) & 0x1FFFF)
    word = word * MIX_B
    return word ^ (torch.bitwise_right_shift(word, 16) & 0xFFFF)
