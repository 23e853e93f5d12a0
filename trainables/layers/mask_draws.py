"""Hash that draws keyed dropout masks, and joint drawing of many masks by one hash (`layers.dropout`)."""

import sys
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

MASK_LEVELS: Final = 1 << 16
"""Number of values of one draw: dropout rates are multiples of its inverse."""
MIX_A: Final = 0x7FEB352D
MIX_B: Final = -2_073_254_261
"""Odd factors of the two rounds of the 32-bit hash."""
ODD_32: Final = -1_640_531_527
"""Factor of numbers before they are hashed: 2^32 divided by the golden ratio."""
MAX_WORDS = 1 << 22
"""Maximum number of words hashed at once for several masks: 16 MiB, and 16 MiB of temporary memory."""
CACHED_WORDS = 1 << 18
"""Number of words hashed at once on a CPU if a mask has more than `MAX_WORDS`."""
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


@lru_cache(maxsize=256)
def salt_numbers(counts: tuple[int, ...]) -> Int[np.ndarray, " C"]:
    """Return the salt numbers of several groups of words; numbering restarts in each group (read-only)."""
    element_numbers: np.ndarray = (
        np.concatenate([np.arange(count, dtype=np.int64) for count in counts]) * ODD_32
    )
    element_numbers.flags.writeable = False
    return element_numbers


@lru_cache(maxsize=256)
def element_numbers(shape: tuple[int, ...]) -> Int[np.ndarray, "*C"]:
    """Return the salt numbers of `shape` = (words,) elements, or of (heads, 1, words) of them (read-only)."""
    heads = np.arange(shape[0] if len(shape) > 1 else 1).reshape(-1, *[1] * (len(shape) - 1))
    element_numbers: np.ndarray = (heads * HEAD_STRIDE + np.arange(shape[-1], dtype=np.int64)) * ODD_32
    element_numbers.flags.writeable = False
    return element_numbers


def compute_salts(key: Any, number: Int[np.ndarray, "*C"]) -> Int[np.ndarray, "*K"]:
    """Return the salts that are combined with places before hashing, one per word of a mask.

    Args:
        key: One key or an array of keys.
        number: Numbers of the elements times `ODD_32`.
    """
    words = (number + (key & 0x7FFFFFFF)) ^ (key >> 32)
    signed_words: np.ndarray = words.astype(np.uint32).view(np.int32)
    return signed_words


def hash_numbers(number: Int[Tensor, "*M"]) -> Int[Tensor, "*M"]:
    """Return a distinct 32-bit word for each number below 2^32, spread over all bits."""
    word = number.to(torch.int32) * ODD_32
    mix(word)
    return word


def hash_on_host(number: Int[np.ndarray, "*M"]) -> Int[np.ndarray, "*M"]:
    """Return the result of `hash_numbers`, computed on the host."""
    word: np.ndarray = number.astype(np.uint32) * np.uint32(ODD_32 & 0xFFFFFFFF)
    for shift, factor in ((16, MIX_A), (15, MIX_B)):
        word = (word ^ (word >> shift)) * np.uint32(factor & 0xFFFFFFFF)
    hash_numbers: np.ndarray = (word ^ (word >> 16)).view(np.int32)
    return hash_numbers


def compute_keep_mask(words: Int[Tensor, "*W"], levels: int) -> Bool[Tensor, "*C"]:
    """Return the mask of kept elements, given hashed `words` of two draws each.

    `levels` of the `MASK_LEVELS` possible values are dropped.
    """
    draws = words.view(torch.int16)
    # On a CPU, writing a comparison into bytes takes a fifth of the time of writing it into booleans.
    keep = torch.empty(draws.shape, dtype=torch.uint8, device=draws.device)
    return torch.ge(draws, levels - MASK_LEVELS // 2, out=keep).view(torch.bool)


class _Job(NamedTuple):
    """Scheduled masks that are computed from one table of hash words."""

    place: Int[Tensor, "*M"]
    salt: Int[Tensor, "*C"]
    parts: list[tuple[int, int]]
    """For each of the adjacent masks, its level and its number of words per place."""
    deliver: Callable[[list[Tensor]], None]
    shape: tuple[int, ...]
    """Shape of the table of words."""
    words: int
    """Number of words."""

    @classmethod
    def of(
        cls,
        positions: Tensor,
        salt: Tensor,
        parts: list[tuple[int, int]],
        deliver: Callable[[list[Tensor]], None],
    ) -> "_Job":
        """Build the job of masks whose words are hashes of `positions` combined with `salt`."""
        shape = _broadcast(tuple(positions.shape), tuple(salt.shape))
        return cls(positions, salt, parts, deliver, shape, prod(shape))


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """Return the broadcast shape of two shapes, in a tenth of the time of `numpy.broadcast_shapes`."""
    if len(first) < len(second):
        first, second = second, first
    gap = len(first) - len(second)
    return (*first[:gap], *[y if x == 1 else x for x, y in zip(first[gap:], second, strict=True)])


class MaskDraws:
    """Masks of any shapes that are drawn by one hash."""

    def __init__(self) -> None:
        self._jobs: list[_Job] = []

    def add(
        self,
        positions: Int[Tensor, "*M"],
        salt: Int[Tensor, "*C"],
        parts: list[tuple[int, int]],
        deliver: Callable[[list[Tensor]], None],
    ) -> None:
        """Schedule masks whose words are hashes of `positions` combined with `salt`.

        Args:
            positions: Places of tokens.
            salt: Salts; the last axis holds the words of all `parts`.
            parts: Level and number of words of each mask; draws from the level on are kept.
            deliver: Function that receives the drawn masks.
        """
        self._jobs.append(_Job.of(positions, salt, parts, deliver))

    def run(self) -> None:
        """Draw the masks of all jobs, in portions of at most `MAX_WORDS` if there are several jobs."""
        jobs, self._jobs = self._jobs, []
        portion: list[_Job] = []
        total = 0
        for job in jobs:
            if portion and total + job.words > MAX_WORDS:
                _draw_all(portion)
                portion, total = [], 0
            portion.append(job)
            total += job.words
        if portion:
            _draw_all(portion)


def _draw_all(jobs: list[_Job]) -> None:
    if len(jobs) == 1:
        _draw_one(jobs[0])
        return
    sizes = [job.words for job in jobs]
    all_words = torch.empty(sum(sizes), dtype=torch.int32, device=jobs[0].place.device)
    for job, part in zip(jobs, all_words.split_with_sizes(sizes), strict=True):
        torch.bitwise_xor(job.place.to(torch.int32), job.salt, out=part.view(job.shape))
    mix(all_words)
    levels = {level for job in jobs for level, _ in job.parts}
    has_several_levels = len(levels) > 1
    table = all_words if has_several_levels else compute_keep_mask(all_words, levels.pop())
    pieces = table.split_with_sizes(sizes if has_several_levels else [2 * size for size in sizes])
    for job, piece in zip(jobs, pieces, strict=True):
        mask = piece.view(*job.shape[:-1], -1)
        if has_several_levels:
            _deliver(job, mask)
            continue
        job.deliver(_cut_columns(mask, [2 * count for _, count in job.parts]))


def _draw_one(job: _Job) -> None:
    place, count = job.place.to(torch.int32), job.words
    if count <= MAX_WORDS or place.is_cuda or len(job.parts) > 1:
        word = place ^ job.salt
        mix(word)
        _deliver(job, word)
        return
    # If words stay in the cache until they are compared, all passes over them take half of the time.
    (level, _), (rows, *others) = job.parts[0], job.shape
    keep = torch.empty((rows, *others[:-1], 2 * others[-1]), dtype=torch.uint8, device=place.device)
    rows_per_block = max(1, CACHED_WORDS * rows // count)
    place = place.expand(rows, *place.shape[1:])
    for places, result in zip(
        torch.split(place, rows_per_block), torch.split(keep, rows_per_block), strict=True
    ):
        word = places ^ job.salt
        mix(word)
        torch.ge(word.view(torch.int16), level - MASK_LEVELS // 2, out=result)
    job.deliver([keep.view(torch.bool)])


def _deliver(job: _Job, words: Int[Tensor, "*K"]) -> None:
    pieces = _cut_columns(words, [count for _, count in job.parts])
    job.deliver(
        [compute_keep_mask(piece, level) for (level, _), piece in zip(job.parts, pieces, strict=True)]
    )


def _cut_columns(x: Tensor, sizes: list[int]) -> list[Tensor]:
    """Split `x` along the last axis into parts of the given `sizes`."""
    return [x] if len(sizes) == 1 else list(x.split_with_sizes(sizes, -1))
