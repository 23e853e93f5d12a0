"""Hash that draws keyed dropout masks (`layers.dropout`)."""

import sys
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from trainables.layers.constant_shapes import cached_constants

MASK_LEVELS: Final = 1 << 16
"""Number of values of one draw: dropout rates are multiples of its inverse."""
MIX_A: Final = 0x7FEB352D
MIX_B: Final = -2_073_254_261
"""Odd factors of the two rounds of the 32-bit hash."""
ODD_32: Final = -1_640_531_527
"""Factor of numbers before they are hashed: 2^32 divided by the golden ratio."""
HEAD_STRIDE: Final = 1 << 16
"""Distance of the numbers of elements with the same key in consecutive heads."""
_LOW = 0 if sys.byteorder == "little" else 1


def mix(word: Tensor) -> None:
    """Mix the bits of 32-bit words in place: two rounds of xor-shift and odd multiplication."""
    halves = word.view(torch.int16)
    low, high = halves[..., _LOW::2], halves[..., 1 - _LOW :: 2]
    low ^= high  # word ^= word >> 16, with an unsigned shift
    word *= MIX_A
    word ^= (word >> 15).bitwise_and_(0x1FFFF)
    word *= MIX_B
    low ^= high


@cached_constants(maxsize=256)
def element_numbers(shape: tuple[int, ...], device: torch.device) -> Int[Tensor, "*C"]:
    """Return the numbers of `shape` = (words,) elements, or of (heads, 1, words) of them, times `ODD_32`."""
    heads = np.arange(shape[0] if len(shape) > 1 else 1).reshape(-1, *[1] * (len(shape) - 1))
    numbers = (heads * HEAD_STRIDE + np.arange(shape[-1], dtype=np.int64)) * ODD_32
    return torch.from_numpy(numbers.astype(np.int32)).to(device)


@lru_cache(maxsize=256)
def joint_numbers(counts: tuple[int, ...]) -> Int[np.ndarray, " W"]:
    """Return the numbers of several groups of words, counted from 0 in each group, times `ODD_32`."""
    return np.concatenate([np.arange(count, dtype=np.int64) for count in counts]) * ODD_32


def hash_numbers(number: Int[Tensor, "*M"]) -> Int[Tensor, "*M"]:
    """Return a distinct 32-bit word for each number below 2^32, spread over all bits."""
    word = number.to(torch.int32) * ODD_32
    mix(word)
    return word


def compute_keep_mask(words: Int[Tensor, "*W"], levels: int) -> Bool[Tensor, "*C"]:
    """Return the mask of kept elements, given hashed `words` of two draws each.

    `levels` of the `MASK_LEVELS` possible values are dropped.
    """
    draws = words.view(torch.int16)
    # On a CPU, writing a comparison into bytes takes a fifth of the time of writing it into booleans.
    keep = torch.empty(draws.shape, dtype=torch.uint8, device=draws.device)
    return torch.ge(draws, levels - MASK_LEVELS // 2, out=keep).view(torch.bool)
