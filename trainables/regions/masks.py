"""The keyed masks of `layers.dropout`, without the writes in place and the changes of type that fuse badly.

Legend: M tokens, C columns, W = C / 2 words of 32 bits, each of two draws; B rows of T queries and K keys.
"""

from typing import Final, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trainables.regions.compiling import region

MASK_LEVELS: Final = 1 << 16
"""Values of one draw: rates are multiples of its inverse."""
MIX_A: Final = 0x7FEB352D
MIX_B: Final = -2_073_254_261
"""Odd factors of the hash of 32 bits, one of each round."""
ODD_32: Final = -1_640_531_527
"""What numbers are multiplied by before they are hashed: 2^32 over the golden ratio."""


class ElementMask(NamedTuple):
    """What dropout leaves, and what that is multiplied by."""

    keep: Bool[Tensor, "M C"]
    scale: float

    def of(self, x: Float[Tensor, "M C"]) -> Float[Tensor, "M C"]:
        """`x` where it is kept, scaled, and zero elsewhere."""
        return x * self.keep.to(x.dtype) * self.scale


class WeightMask(NamedTuple):
    """The same of attention weights."""

    keep: Bool[Tensor, "B H T K"]
    scale: float


@region
def drawn(place: Int[Tensor, " M"], salt: Int[Tensor, " W"], levels: int) -> Bool[Tensor, "M C"]:
    """Which elements of each token are kept."""
    return _draws(place.to(torch.int32)[:, None] ^ salt) >= levels - MASK_LEVELS // 2


@region
def drawn_weights(
    place: Int[Tensor, "B T"],
    key: Int[Tensor, "2"],
    keys: Bool[Tensor, "B K"],
    *,
    heads: int,
    stride: int,
    levels: int,
) -> Bool[Tensor, "B H T K"]:
    """Which attention weights of each query are kept, over the columns of `keys`."""
    device, columns = place.device, keys.shape[1]
    pair = torch.arange((columns + 1) // 2, device=device)
    number = (torch.arange(heads, device=device)[:, None, None] * stride + pair) * ODD_32
    salt = ((number + key[0]) ^ key[1]).to(torch.int32)
    words = place.to(torch.int32)[:, None, :, None] ^ salt
    return _draws(words)[..., :columns] >= levels - MASK_LEVELS // 2


def _draws(words: Int[Tensor, "*any W"]) -> Int[Tensor, "*any C"]:
    """The two signed draws of every word beside each other."""
    words = _mixed(words)
    low = torch.bitwise_right_shift(torch.bitwise_left_shift(words, 16), 16)
    return torch.stack((low, torch.bitwise_right_shift(words, 16)), -1).flatten(-2)


def _mixed(word: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
    word = word ^ (torch.bitwise_right_shift(word, 16) & 0xFFFF)
    word = word * MIX_A
    word = word ^ (torch.bitwise_right_shift(word, 15) & 0x1FFFF)
    word = word * MIX_B
    return word ^ (torch.bitwise_right_shift(word, 16) & 0xFFFF)
