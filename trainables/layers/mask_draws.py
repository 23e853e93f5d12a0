"""The hash that keyed masks are drawn by, and draws of many masks by one hash (`layers.dropout`)."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from trainables.layers.stacked import for_all, stacked
from trainables.regions.masks import MASK_LEVELS, MIX_A, MIX_B

MOST_WORDS = 1 << 22
"""Most that are hashed at once for several masks: 16 MiB, and as much again while they are."""
_LOW = 0 if sys.byteorder == "little" else 1


def mix(word: Tensor) -> None:
    """Avalanche of 32-bit words in place: two rounds of xor-shift and odd multiplication."""
    halves = word.view(torch.int16)
    low, high = halves[..., _LOW::2], halves[..., 1 - _LOW :: 2]
    low ^= high  # word ^= word >> 16, as of words without a sign
    word *= MIX_A
    word ^= (word >> 15).bitwise_and_(0x1FFFF)
    word *= MIX_B
    low ^= high


def kept(words: Int[Tensor, "*W"], levels: int) -> Bool[Tensor, "*C"]:
    """What the draws in hashed `words`, two in each, leave where so many of `MASK_LEVELS` are dropped."""
    draws = words.view(torch.int16)
    # On a CPU, comparing into bytes takes a fifth of the time of comparing into booleans.
    keep = torch.empty(draws.shape, dtype=torch.uint8, device=draws.device)
    return torch.ge(draws, levels - MASK_LEVELS // 2, out=keep).view(torch.bool)


@dataclass(frozen=True)
class _Job:
    """Masks of one table of words."""

    place: Int[Tensor, "*M"]
    salt: Int[Tensor, "*C"]
    parts: list[tuple[int, int]]
    """Of each of the masks beside each other its level, and how many words it takes of a place."""
    give: Callable[[list[Tensor]], None]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the words."""
        return np.broadcast_shapes(tuple(self.place.shape), tuple(self.salt.shape))


class MaskDraws:
    """Masks that are drawn by one hash, whatever their shapes."""

    def __init__(self) -> None:
        self._jobs: list[_Job] = []

    def add(
        self,
        place: Int[Tensor, "*M"],
        salt: Int[Tensor, "*C"],
        parts: list[tuple[int, int]],
        give: Callable[[list[Tensor]], None],
    ) -> None:
        """Draw masks over `place` and `salt` broadcast, whose last axis is that of the words of all `parts`,
        and `give` them to who uses them. Of a level, draws from it on are kept (`kept`)."""
        self._jobs.append(_Job(place, salt, parts, give))

    def run(self) -> None:
        """Draw what was added, in portions of at most `MOST_WORDS` where there is more than one job."""
        jobs, self._jobs = self._jobs, []
        if jobs and stacked():
            _draw_for_members(jobs)
        else:
            _draw_in_portions(jobs)


def _draw_in_portions(jobs: list[_Job]) -> None:
    portion: list[_Job] = []
    total = 0
    for job in jobs:
        count = prod(job.shape)
        if portion and total + count > MOST_WORDS:
            _draw_all(portion)
            portion, total = [], 0
        portion.append(job)
        total += count
    if portion:
        _draw_all(portion)


def _draw_for_members(jobs: list[_Job]) -> None:
    """Of a stack (`layers.stacked`), whose members have salts of their own: the first axis of them."""

    def of_all(*places: Tensor) -> tuple[Tensor, ...]:
        found: list[Tensor] = []
        _draw_in_portions(
            [_of_members(job, place, found.extend) for job, place in zip(jobs, places, strict=True)]
        )
        return tuple(found)

    masks = iter(for_all(of_all, *(job.place for job in jobs)))
    for job in jobs:
        job.give([next(masks) for _ in job.parts])


def _of_members(job: _Job, place: Int[Tensor, "W ..."], give: Callable[[list[Tensor]], None]) -> _Job:
    between = (1,) * (place.dim() - job.salt.dim())
    return _Job(place, job.salt.view(job.salt.shape[0], *between, *job.salt.shape[1:]), job.parts, give)


def _draw_all(jobs: list[_Job]) -> None:
    if len(jobs) == 1:
        word = jobs[0].place.to(torch.int32) ^ jobs[0].salt
        mix(word)
        _give(jobs[0], word)
        return
    sizes = [prod(job.shape) for job in jobs]
    whole = torch.empty(sum(sizes), dtype=torch.int32, device=jobs[0].place.device)
    words = [part.view(job.shape) for job, part in zip(jobs, torch.split(whole, sizes), strict=True)]
    for job, word in zip(jobs, words, strict=True):
        torch.bitwise_xor(job.place.to(torch.int32), job.salt, out=word)
    mix(whole)
    levels = {level for job in jobs for level, _ in job.parts}
    if len(levels) > 1:
        for job, word in zip(jobs, words, strict=True):
            _give(job, word)
        return
    masks = torch.split(kept(whole, levels.pop()), [2 * size for size in sizes])
    for job, keep in zip(jobs, masks, strict=True):
        mask = keep.view(*job.shape[:-1], -1)
        job.give(list(torch.split(mask, [2 * count for _, count in job.parts], -1)))


def _give(job: _Job, words: Int[Tensor, "*K"]) -> None:
    pieces = torch.split(words, [count for _, count in job.parts], -1)
    job.give([kept(piece, level) for (level, _), piece in zip(job.parts, pieces, strict=True)])
