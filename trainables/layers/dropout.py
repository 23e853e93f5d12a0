"""Dropout whose masks are a function of names, not of the order of draws.

Whether element c of a token is dropped depends on (seed, step, part, qualified name of the module, number of
the call) through `trainables.streams`, and on the token's own place in the full batch, through an integer
hash. So a mask is the one drawn at the full batch shape, but only its needed part is ever computed: tokens
and rows that left the batch cost nothing, padding changes nothing, and two arms that share a module share its
masks. Masks are the same on every device.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import is_
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trainables.layers.constant_shapes import cached_constants, constant_shapes
from trainables.layers.host import Function, modules_of, named_modules_of, uploaded
from trainables.layers.mask_draws import MASK_LEVELS, ODD_32, MaskDraws, kept, mix, salt_numbers, salted
from trainables.seeds import derive

HALF_WORDS = 1 << 31


class _Ready(NamedTuple):
    """A mask that waits for its use."""

    keep: Tensor
    place: Tensor
    """What it was drawn at."""
    beside: Tensor | None = None
    """The same with the mask beside it, where one tensor holds both."""


@dataclass
class _Stream:
    """Where a module has its random numbers from."""

    seed: int
    name: tuple[str | int, ...]
    calls: int = 0
    """Keys drawn so far."""
    ready: "deque[_Ready]" = field(default_factory=deque)
    """Of a dropout, the masks of the next uses that have been drawn already; their keys count as drawn."""

    def key(self, call: int) -> int:
        """Return the key of the masks of call number `call`."""
        key = derive(self.seed, *self.name, call)
        if (shapes := constant_shapes()) is not None:
            shapes.salts.note_key(key, self.name, call)
        return key


Drawn = tuple[_Stream | None, int, tuple[_Ready, ...]]
"""A stream, if one was begun, and all that calls change of it."""


class Keyed(nn.Module):
    """A module that draws random numbers in a forward pass: each call has a key of its own."""

    by_place: ClassVar[bool] = True
    """Whether what is drawn for an example depends on its place in the full batch, so that it is the same in
    whichever part of the batch the example is run."""

    def __init__(self) -> None:
        super().__init__()
        self._stream: _Stream | None = None

    def begin(self, seed: int, *name: str | int) -> None:
        """Start the stream `name` of `seed`; the next call is number 0."""
        # PyTorch would look whether it is a weight.
        object.__setattr__(self, "_stream", _Stream(seed, name))

    def skip_to(self, call: int) -> None:
        """Make the next call number `call`."""
        if self._stream is not None:
            self._stream.calls = call
            self._stream.ready.clear()

    @property
    def drawn(self) -> "Drawn":
        """How far the stream is, to be set again for calls to draw once more what they drew."""
        stream = self._stream
        return (None, 0, ()) if stream is None else (stream, stream.calls, tuple(stream.ready))

    @drawn.setter
    def drawn(self, state: "Drawn") -> None:
        # The same stream, not its like: salts of several calls are made at once and belong to it.
        self._stream, calls, ready = state
        if self._stream is not None:
            self._stream.calls, self._stream.ready = calls, deque(ready)

    def draw(self) -> int:
        """Key of the next call. Raises ValueError if no stream was begun."""
        stream = _begun(self)
        stream.calls += 1
        return stream.key(stream.calls - 1)


def _begun(module: Keyed) -> _Stream:
    if module._stream is None:
        raise ValueError(
            "dropout in training mode needs a random stream, got none;"
            " call set_dropout_context(model, seed, step) before the forward pass, or model.eval()"
        )
    return module._stream


class KeyedNoise(Keyed):
    """Numbers even between 0 and 1, ends excluded."""

    def forward(self, place: Int[Tensor, " M"], columns: int) -> Float[Tensor, "M C"]:
        """So many in 64 bits for each token, by its place in the full batch."""
        salt = salts_on(place.device, self.draw(), np.arange(columns, dtype=np.int64) * ODD_32)
        words = place.to(torch.int32)[..., None] ^ salt
        mix(words)
        return (words.to(torch.float64) + (HALF_WORDS + 0.5)) / (2 * HALF_WORDS)


class KeyedDropout(Keyed):
    """Inverted dropout at rate `rate`, rounded to a multiple of 2^-16.

    With `columns`, the size of what elements are dropped of, its masks can be drawn together with others'.
    """

    def __init__(self, rate: float, columns: int | None = None) -> None:
        super().__init__()
        self.rate = rate
        self.columns = columns
        self.levels = round(rate * MASK_LEVELS)
        self.scale = 1 / self.keep_share()

    @property
    def active(self) -> bool:
        """Whether a call would drop anything."""
        return self.training and self.levels > 0

    def keep_share(self) -> float:
        """Exact probability that an element is kept."""
        return 1 - self.levels / MASK_LEVELS

    def mask(
        self, key: int, place: Int[Tensor, "*M"], element: Int[np.ndarray, "*C"], columns: int
    ) -> Bool[Tensor, "*K"]:
        """Which elements are kept, over `place` and `element` broadcast, the last axis cut to `columns`.

        Every element of the last axis stands for two columns: a 32-bit hash holds two 16-bit draws. Places
        come scattered already.
        """
        word = place.to(torch.int32) ^ salts_on(place.device, key, element.astype(np.int64) * ODD_32)
        mix(word)
        return kept(word, self.levels)[..., :columns]

    def drop(
        self, x: Float[Tensor, "*K"], keep: Bool[Tensor, "*K"], onto: Float[Tensor, "*K"] | None = None
    ) -> Float[Tensor, "*K"]:
        """`x` where `keep` has it, scaled, and zero elsewhere; added `onto` something if that is given."""
        return dropped(x, keep, self.scale, onto)

    def forward(
        self, x: Float[Tensor, "*M C"], place: Int[Tensor, "*M"], onto: Float[Tensor, "*M C"] | None = None
    ) -> Float[Tensor, "*M C"]:
        """`x` with elements dropped and the rest scaled, added `onto` something if that is given.

        `place` is each token's place in the full batch.
        """
        if not (self.training and self.levels):
            return x if onto is None else onto + x
        return dropped(x, self.taken(place, x.shape[-1]), self.scale, onto)

    def taken(self, place: Int[Tensor, "*M"], columns: int) -> Bool[Tensor, "*M C"]:
        """The mask of this call, which no other gets."""
        ready = _begun(self).ready
        if ready and ready[0].place is place:
            return ready.popleft().keep
        self.forget()
        draws = MaskDraws()
        self.ask(draws, place, (*place.shape, 1), np.arange((columns + 1) // 2))
        draws.run()
        return ready.popleft().keep[..., :columns]

    def drawn_at(self, place: Tensor) -> bool:
        """Whether the mask of the next use has been drawn already, at this very `place`."""
        return (
            (stream := self._stream) is not None and bool(ready := stream.ready) and ready[0].place is place
        )

    def forget(self) -> None:
        """Let masks that wait be drawn anew: the next use is at another place than was thought."""
        if self._stream is not None:
            self._stream.calls -= len(self._stream.ready)
            self._stream.ready.clear()

    def put(self, keep: Tensor, place: Tensor, beside: Tensor | None = None) -> None:
        """The mask of the next use that has none yet, at `place`."""
        _begun(self).ready.append(_Ready(keep, place, beside))

    def take(self) -> _Ready:
        """The mask of the next use."""
        return _begun(self).ready.popleft()

    def ask(
        self,
        draws: "MaskDraws",
        place: Int[Tensor, "*M"],
        shape: tuple[int, ...],
        element: np.ndarray,
    ) -> None:
        """Have the mask of the next call drawn for `element`s of `place`, which is seen in `shape`."""
        salt = salts_on(place.device, self.draw(), element * ODD_32)

        def give(masks: list[Tensor]) -> None:
            self.put(masks[0], place)

        draws.add(place.view(shape), salt, [(self.levels, salt.shape[-1])], give)

    def asked(self, place: Tensor, columns: int) -> Bool[Tensor, "*K"] | None:
        """The mask that was asked for, if it has been drawn at this very `place`; if not, what waits is
        forgotten."""
        if self.drawn_at(place):
            keep = self.take().keep
            return keep if keep.shape[-1] == columns else keep[..., :columns]
        self.forget()
        return None


def drop_side_by_side(
    dropouts: tuple[KeyedDropout, KeyedDropout], x: Float[Tensor, "M C"], place: Int[Tensor, " M"]
) -> Float[Tensor, "M C"]:
    """`x` with elements dropped, its first columns by one of `dropouts` and the others by the other."""
    one = dropouts[0]
    if not one.active:
        return x
    return one.drop(x, taken_side_by_side(dropouts, place))


def taken_side_by_side(
    dropouts: tuple[KeyedDropout, KeyedDropout], place: Int[Tensor, " M"]
) -> Bool[Tensor, "M C"]:
    """The masks of this call of both, beside each other."""
    for each in dropouts:
        if not each.drawn_at(place):
            DropoutGroup([each]).draw(place)
    first, second = (each.take() for each in dropouts)
    return torch.cat((first.keep, second.keep), -1) if first.beside is None else first.beside


class DropoutGroup:
    """Dropouts of one part of a model, whose masks are drawn by one hash for all."""

    def __init__(self, dropouts: Iterable[KeyedDropout], beside: tuple[KeyedDropout, ...] = ()) -> None:
        self._dropouts = tuple(dropouts)
        self._beside = beside
        self._salts: _Salts | None = None

    @classmethod
    def within(cls, part: nn.Module, beside: Iterable[KeyedDropout] = ()) -> "DropoutGroup":
        """All dropouts of `part` that know the size of what they take elements of; masks of those `beside`
        each other can be used as one."""
        others = [each for each in part.modules() if isinstance(each, KeyedDropout) and each.columns]
        return cls(dict.fromkeys((*beside, *others)), tuple(beside))

    def draw(self, place: Int[Tensor, "*M"], columns: int | None = None) -> None:
        """Draw what the next call of each, at `place`, will drop: the masks that each would draw alone.

        `columns` for dropouts that do not know their own.
        """
        draws = MaskDraws()
        self.ask(draws, place, columns)
        draws.run()

    def ask(
        self,
        draws: "MaskDraws",
        place: Int[Tensor, "*M"],
        columns: int | None = None,
    ) -> None:
        """Have it done by `draws`."""
        for each in self._dropouts:
            each.forget()
        active = [each for each in self._dropouts if each.active]
        if not active:
            return
        sizes = [each.columns or columns or 0 for each in active]
        salt = self._salt(active, tuple(sizes), place.device)
        words = [(size + 1) // 2 for size in sizes]
        alike = len({each.levels for each in active}) == 1

        def give(masks: list[Tensor]) -> None:
            self._give(active, sizes, place, masks)

        levels = [each.levels for each in active]
        parts = [(levels[0], sum(words))] if alike else list(zip(levels, words, strict=True))
        draws.add(place[..., None], salt, parts, give)

    def _give(
        self,
        active: list[KeyedDropout],
        sizes: list[int],
        place: Tensor,
        masks: list[Tensor],
    ) -> None:
        """Each its masks, which are one if all have the same rate."""
        beside = None
        if len(masks) < len(active) or len(active) == 1:
            (whole,) = masks
            masks = list(whole.split_with_sizes([size + size % 2 for size in sizes], -1))
            if self._beside and self._beside[0] is active[0] and sizes[0] % 2 == 0:
                beside = whole[..., : sizes[0] + sizes[1]]
        for each, size, mask in zip(active, sizes, masks, strict=True):
            cut = mask[..., :size] if size % 2 else mask
            each.put(cut, place, beside if each is active[0] else None)

    def _salt(
        self, active: list[KeyedDropout], sizes: tuple[int, ...], device: torch.device
    ) -> Int[Tensor, " C"]:
        """Salts of this call for all columns; made at once for as many calls as the last pass had."""
        streams = [_begun(each) for each in active]
        call = streams[0].calls
        salts = self._salts
        if salts is None or not salts.serve(streams, sizes, device):
            # Modules that draw at different calls have no common table.
            last = 0 if salts is None or any(each.calls != call for each in streams) else salts.last
            # A layer that is run again asks for calls that are over, of which no more will come.
            again = salts is not None and salts.belong_to(streams)
            count = 1 if again else last + 1 - call
            salts = self._salts = _Salts.of(streams, sizes, device, max(1, count))
            salts.last = last if again else 0
        salts.last = max(salts.last, call)
        for stream in streams:
            stream.calls += 1
        return salts.table[call - salts.first]


@dataclass
class _Salts:
    """What places are hashed with in some calls of a group of dropouts."""

    streams: list[_Stream]
    sizes: tuple[int, ...]
    first: int
    """Call of the first row."""
    table: Int[Tensor, "K C"]
    last: int = 0
    """The last call that was made."""

    @classmethod
    def of(cls, streams: list[_Stream], sizes: tuple[int, ...], device: torch.device, calls: int) -> "_Salts":
        """Those of the next `calls` calls."""
        words = tuple([(size + 1) // 2 for size in sizes])
        begin = streams[0].calls
        keys = np.array([[each.key(call) for each in streams] for call in range(begin, begin + calls)])
        table = salts_on(device, keys.repeat(words, 1), salt_numbers(words))
        return cls(streams, sizes, streams[0].calls, table)

    def belong_to(self, streams: list[_Stream]) -> bool:
        """Whether these were made for `streams`."""
        return len(streams) == len(self.streams) and all(map(is_, streams, self.streams))

    def serve(self, streams: list[_Stream], sizes: tuple[int, ...], device: torch.device) -> bool:
        """Whether the next call of these is among them."""
        return (
            self.belong_to(streams)
            and all(each.calls == streams[0].calls for each in streams)
            and sizes == self.sizes
            and 0 <= streams[0].calls - self.first < self.table.shape[0]
            and self.table.device.type == device.type
        )


def salts_on(
    device: torch.device, key: Int[np.ndarray, "*K"] | int, number: Int[np.ndarray, "*C"]
) -> Int[Tensor, "*W"]:
    """Return `mask_draws.salted(key, number)` on `device`; a captured pass reads it from its buffer."""
    shapes = constant_shapes()
    return (
        uploaded(salted(key, number), device) if shapes is None else shapes.salts.table(key, number, device)
    )


def set_dropout_context(model: nn.Module, seed: int, step: int, part: int = 0) -> None:
    """Give all that is random in `model` its stream for one forward pass.

    To be called before each forward pass in training: `step` counts optimiser steps, `part` the forward
    passes within one (gradient accumulation), which matters for what draws without places alone. The same
    (seed, step, part) gives the same masks.
    """
    for module, name in named_modules_of(model).items():
        if isinstance(module, Keyed):
            module.begin(seed, "dropout", step, 0 if module.by_place else part, name)


def drawn_in(part: nn.Module) -> list[tuple[Keyed, Drawn]]:
    """Every keyed module of `part`, and how far its stream is, without masks that were drawn before."""
    modules = (module for module in modules_of(part) if isinstance(module, Keyed))
    return [(module, (*module.drawn[:2], ())) for module in modules]


def skip_dropout_calls(model: nn.Module, call: int) -> None:
    """Let the next call of every keyed module in `model` be number `call`.

    For modules whose number of calls depends on the other rows of a batch, which masks must not depend on.
    """
    for module in modules_of(model):
        if isinstance(module, Keyed):
            module.skip_to(call)


MIXED = 1 << 21
"""Most elements of a product of numbers and bytes on a CPU; of more, memory for both counts."""


class _Drop(Function):
    """x * keep * scale, both ways; all that is kept for the backward pass is a byte an element."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return scaled(x, keep, scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return scaled(grads[0], keep, ctx.scale), None, None


class _DropOnto(Function):
    """other + x * keep * scale."""

    @staticmethod
    def forward(ctx: Any, other: Tensor, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return torch.addcmul(other, x, keep.view(torch.uint8), value=scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return grads[0], scaled(grads[0], keep, ctx.scale), None, None


def dropped(
    x: Float[Tensor, "*K"], keep: Bool[Tensor, "*K"], scale: float, onto: Float[Tensor, "*K"] | None = None
) -> Float[Tensor, "*K"]:
    """x * keep * scale, added `onto` something if that is given."""
    found: Tensor = _Drop.run(x, keep, scale) if onto is None else _DropOnto.run(onto, x, keep, scale)
    return found


def scaled(x: Float[Tensor, "*K"], keep: Bool[Tensor, "*K"], scale: float) -> Float[Tensor, "*K"]:
    """x * keep * scale, without a gradient."""
    if x.is_cuda:
        return torch.ops.aten.native_dropout_backward(x, keep, scale)  # type: ignore[no-any-return]
    # On a CPU bytes become floats in a tenth of the time that booleans take.
    kept = keep.view(torch.uint8)
    if x.numel() > MIXED:
        kept = kept.to(x.dtype)
        return kept.mul_(x) if scale == 1 else torch.addcmul(_zero(x.dtype), x, kept, value=scale)
    return x * kept if scale == 1 else torch.addcmul(_zero(x.dtype), x, kept, value=scale)


@cached_constants(maxsize=None)
def _zero(dtype: torch.dtype) -> Tensor:
    return torch.zeros((), dtype=dtype)
