"""Dropout whose masks are a function of names, not of the order of draws.

Whether element c of a token is dropped depends on (seed, step, part, qualified name of the module, number of
the call) through `trainables.streams`, and on the token's own place in the full batch, through an integer
hash. So a mask is the one drawn at the full batch shape, but only its needed part is ever computed: tokens
and rows that left the batch cost nothing, padding changes nothing, and two arms that share a module share its
masks. Masks are the same on every device.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trainables.seeds import derive

MASK_LEVELS = 1 << 16
HALF_WORDS = 1 << 31
_ODD_32 = -1_640_531_527
_MIX_A, _MIX_B = 0x7FEB352D, -2_073_254_261


@dataclass
class _Stream:
    """Where a module has its random numbers from."""

    seed: int
    name: tuple[str | int, ...]
    calls: int = 0
    """Keys drawn so far."""
    keep: Tensor | None = None
    """Of a dropout, the mask of the next use, if it has been drawn already."""


class Keyed(nn.Module):
    """A module that draws random numbers in a forward pass: each call has a key of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._stream: _Stream | None = None

    def begin(self, seed: int, *name: str | int) -> None:
        """Start the stream `name` of `seed`; the next call is number 0."""
        self._stream = _Stream(seed, name)

    def skip_to(self, call: int) -> None:
        """Make the next call number `call`."""
        if self._stream is not None:
            self._stream.calls = call

    def draw(self) -> int:
        """Key of the next call. Raises ValueError if no stream was begun."""
        if self._stream is None:
            raise ValueError(
                "dropout in training mode needs a random stream, got none;"
                " call set_dropout_context(model, seed, step) before the forward pass, or model.eval()"
            )
        self._stream.calls += 1
        return derive(self._stream.seed, *self._stream.name, self._stream.calls - 1)


class KeyedNoise(Keyed):
    """Numbers even between 0 and 1, ends excluded."""

    def forward(self, place: Int[Tensor, " M"], columns: int) -> Float[Tensor, "M C"]:
        """So many in 64 bits for each token, by its place in the full batch."""
        words = _words(self.draw(), place[:, None], _numbers(columns, place.device))
        return (words.to(torch.float64) + (HALF_WORDS + 0.5)) / (2 * HALF_WORDS)


class KeyedDropout(Keyed):
    """Inverted dropout at rate `rate`, rounded to a multiple of 2^-16.

    With `columns`, the size of what elements are dropped of, its masks can be drawn together with others'.
    """

    def __init__(self, rate: float, columns: int | None = None) -> None:
        super().__init__()
        self.rate = rate
        self.columns = columns
        self._levels = round(rate * MASK_LEVELS)

    @property
    def active(self) -> bool:
        """Whether a call would drop anything."""
        return self.training and self._levels > 0

    def keep_share(self) -> float:
        """Exact probability that an element is kept."""
        return 1 - self._levels / MASK_LEVELS

    def mask(
        self, key: int, place: Int[Tensor, "*M"], element: Int[Tensor, "*C"], columns: int
    ) -> Bool[Tensor, "*K"]:
        """Which elements are kept, over `place` and `element` broadcast, the last axis cut to `columns`.

        Every element of the last axis stands for two columns: a 32-bit hash holds two 16-bit draws. Places
        come scattered already.
        """
        words = _words(key, place, element.to(torch.int32) * _ODD_32)
        return self._kept(words, columns)

    def _kept(self, words: Tensor, columns: int) -> Tensor:
        return words.view(torch.int16)[..., :columns] >= self._levels - MASK_LEVELS // 2

    def forward(self, x: Float[Tensor, "*M C"], place: Int[Tensor, "*M"]) -> Float[Tensor, "*M C"]:
        """`x` with elements dropped and the rest scaled; `place` is each token's place in the full batch."""
        if not self.active:
            return x
        if self._stream is None or self._stream.keep is None:
            draw_together([self], place, x.shape[-1])
        assert self._stream is not None
        assert self._stream.keep is not None
        keep, self._stream.keep = self._stream.keep, None
        # A product: on a CPU, choosing by a mask takes ten times as long.
        return x / self.keep_share() * keep


def columned(part: nn.Module) -> list[KeyedDropout]:
    """All dropouts of `part` whose masks can be drawn together."""
    return [each for each in part.modules() if isinstance(each, KeyedDropout) and each.columns is not None]


def draw_together(
    dropouts: Iterable[KeyedDropout], place: Int[Tensor, "*M"], columns: int | None = None
) -> None:
    """Draw what the next call of each, at `place`, will drop: the same masks by one hash for all.

    `columns` for dropouts that do not know their own.
    """
    active = [each for each in dropouts if each.active]
    if not active:
        return
    sizes = [each.columns or columns or 0 for each in active]
    words = [(size + 1) // 2 for size in sizes]
    salts = [
        _salted(each.draw(), _numbers(count, place.device)) for each, count in zip(active, words, strict=True)
    ]
    word = place.to(torch.int32)[..., None] ^ (torch.cat(salts) if len(salts) > 1 else salts[0])
    _mix(word)
    for each, size, part in zip(active, sizes, torch.split(word, words, -1), strict=True):
        assert each._stream is not None
        each._stream.keep = each._kept(part, size)


@cache
def _numbers(count: int, device: torch.device) -> Int[Tensor, " count"]:
    return torch.arange(count, dtype=torch.int32, device=device) * _ODD_32


def _salted(key: int, number: Int[Tensor, "*C"]) -> Int[Tensor, "*C"]:
    return (number + (key & 0x7FFFFFFF)) ^ (key >> 32)


def scattered(number: Int[Tensor, "*M"]) -> Int[Tensor, "*M"]:
    """A 32-bit word for each number below 2^32, spread over all bits; no two are alike."""
    word = number.to(torch.int32) * _ODD_32
    _mix(word)
    return word


def _words(key: int, place: Int[Tensor, "*M"], number: Int[Tensor, "*C"]) -> Int[Tensor, "*K"]:
    """A hash for each pair of a place and a spread-out number; only one is taken at full size."""
    word = place.to(torch.int32) ^ _salted(key, number)
    _mix(word)
    return word


def _mix(word: Tensor) -> None:
    """Avalanche of 32-bit words in place: two rounds of xor-shift and odd multiplication."""
    high = word >> 16
    word ^= high.bitwise_and_(0xFFFF)
    word *= _MIX_A
    torch.bitwise_right_shift(word, 15, out=high)
    word ^= high.bitwise_and_(0x1FFFF)
    word *= _MIX_B
    torch.bitwise_right_shift(word, 16, out=high)
    word ^= high.bitwise_and_(0xFFFF)


def set_dropout_context(model: nn.Module, seed: int, step: int, part: int = 0) -> None:
    """Give all that is random in `model` its stream for one forward pass.

    To be called before each forward pass in training: `step` counts optimiser steps, `part` the forward
    passes within one (gradient accumulation). The same (seed, step, part) gives the same masks.
    """
    for name, module in model.named_modules():
        if isinstance(module, Keyed):
            module.begin(seed, "dropout", step, part, name)


def skip_dropout_calls(model: nn.Module, call: int) -> None:
    """Let the next call of every keyed module in `model` be number `call`.

    For modules whose number of calls depends on the other rows of a batch, which masks must not depend on.
    """
    for module in model.modules():
        if isinstance(module, Keyed):
            module.skip_to(call)
