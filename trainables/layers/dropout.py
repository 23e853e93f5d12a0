"""Dropout whose masks are a function of names, independent of the order of draws.

The mask of element c of a token depends on (seed, step, part, qualified name of the module, number of the
call) through `trainables.streams`, and on the token's place in the full batch through an integer hash. A mask
is therefore that of the full batch, but only the required part of it is computed. Removed tokens and rows
cost nothing, padding has no effect, and two arms that share a module share its masks. Masks are the same on
every device.
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
from trainables.layers.host import Function, modules_of, named_modules_of, upload
from trainables.layers.mask_draws import (
    MASK_LEVELS,
    MaskDraws,
    compute_keep_mask,
    compute_salts,
    element_numbers,
    mix,
    salt_numbers,
)
from trainables.seeds import derive

HALF_WORDS = 1 << 31


class _DrawnMask(NamedTuple):
    """A mask that was drawn in advance."""

    keep: Tensor
    place: Tensor
    """Places for which the mask was drawn."""
    joint_mask: Tensor | None = None
    """The tensor that holds this mask and the adjacent one, if one tensor holds both."""


@dataclass
class _Stream:
    """Random stream of a module."""

    seed: int
    name: tuple[str | int, ...]
    calls: int = 0
    """Number of keys drawn so far."""
    drawn_masks: "deque[_DrawnMask]" = field(default_factory=deque)
    """For dropout, masks of the next uses that were drawn in advance; their keys count as drawn."""

    def key(self, call: int) -> int:
        """Return the key of the masks of call number `call`."""
        key = derive(self.seed, *self.name, call)
        if (shapes := constant_shapes()) is not None:
            shapes.salts.note_key(key, self.name, call)
        return key


Drawn = tuple[_Stream | None, int, tuple[_DrawnMask, ...]]
"""A stream (None before `begin`), its number of calls, and its masks drawn in advance."""


class Keyed(nn.Module):
    """A module that draws random numbers in a forward pass, with a separate key for each call."""

    by_place: ClassVar[bool] = True
    """Whether draws for an example depend on its place in the full batch, so that they are the same in any
    part of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self._stream: _Stream | None = None

    def begin(self, seed: int, *name: str | int) -> None:
        """Start the stream `name` of `seed`; the next call is number 0."""
        # `nn.Module.__setattr__` would check whether the value is a weight.
        object.__setattr__(self, "_stream", _Stream(seed, name))

    def skip_to(self, call: int) -> None:
        """Make the next call number `call`."""
        if self._stream is not None:
            self._stream.calls = call
            self._stream.drawn_masks.clear()

    @property
    def drawn(self) -> "Drawn":
        """State of the stream; assigning an earlier state repeats the draws that followed it."""
        stream = self._stream
        return (None, 0, ()) if stream is None else (stream, stream.calls, tuple(stream.drawn_masks))

    @drawn.setter
    def drawn(self, state: "Drawn") -> None:
        # The stream object itself, not a copy: salts of several calls belong to it.
        self._stream, calls, ready = state
        if self._stream is not None:
            self._stream.calls, self._stream.drawn_masks = calls, deque(ready)

    def draw(self) -> int:
        """Return the key of the next call. Raise ValueError if no stream was started."""
        stream = _current_stream(self)
        stream.calls += 1
        return stream.key(stream.calls - 1)


def _current_stream(module: Keyed) -> _Stream:
    if module._stream is None:
        raise ValueError(
            "dropout in training mode needs a random stream, got none;"
            " call set_dropout_context(model, seed, step) before the forward pass, or model.eval()"
        )
    return module._stream


class KeyedNoise(Keyed):
    """Uniform random numbers between 0 and 1, both excluded."""

    def forward(self, positions: Int[Tensor, " M"], columns: int) -> Float[Tensor, "M C"]:
        """Return `columns` numbers in 64 bits for each token, by its place in the full batch."""
        salt = call_salts(positions.device, self.draw(), (columns,))
        words = positions.to(torch.int32)[..., None] ^ salt
        mix(words)
        return (words.to(torch.float64) + (HALF_WORDS + 0.5)) / (2 * HALF_WORDS)


class KeyedDropout(Keyed):
    """Inverted dropout at rate `rate`, rounded to a multiple of 2^-16.

    With `columns`, the size of the last axis of its inputs, its masks can be drawn jointly with others.
    """

    def __init__(self, rate: float, columns: int | None = None) -> None:
        super().__init__()
        self.rate = rate
        self.columns = columns
        self.levels = round(rate * MASK_LEVELS)
        self.scale = 1 / self.keep_share()

    @property
    def active(self) -> bool:
        """Whether a call would drop any elements."""
        return self.training and self.levels > 0

    def keep_share(self) -> float:
        """Return the exact probability that an element is kept."""
        return 1 - self.levels / MASK_LEVELS

    def mask(
        self, key: int, positions: Int[Tensor, "*M"], shape: tuple[int, ...], columns: int
    ) -> Bool[Tensor, "*K"]:
        """Return the mask of kept elements of all `positions`.

        Args:
            key: Key of the call.
            positions: Hashed places of tokens.
            shape: Shape of the words of a token (`mask_draws.element_numbers`). A word denotes two columns: a
                32-bit hash holds two 16-bit draws.
            columns: Size to which the last axis is cut.
        """
        word = positions.to(torch.int32) ^ call_salts(positions.device, key, shape)
        mix(word)
        return compute_keep_mask(word, self.levels)[..., :columns]

    def drop(
        self, x: Float[Tensor, "*K"], keep: Bool[Tensor, "*K"], residual: Float[Tensor, "*K"] | None = None
    ) -> Float[Tensor, "*K"]:
        """Return scaled `x` where `keep` is True and zero elsewhere, added to `residual` if given."""
        return dropped(x, keep, self.scale, residual)

    def forward(
        self,
        x: Float[Tensor, "*M C"],
        positions: Int[Tensor, "*M"],
        residual: Float[Tensor, "*M C"] | None = None,
    ) -> Float[Tensor, "*M C"]:
        """Return `x` with elements dropped and the rest scaled, added to `residual` if given.

        Args:
            x: Values, (..., columns).
            positions: Place of each token in the full batch.
            residual: Residual of the shape of `x`.
        """
        if not (self.training and self.levels):
            return x if residual is None else residual + x
        return dropped(x, self.take_mask(positions, x.shape[-1]), self.scale, residual)

    def take_mask(self, positions: Int[Tensor, "*M"], columns: int) -> Bool[Tensor, "*M C"]:
        """Return the mask of this call and consume it."""
        drawn_masks = _current_stream(self).drawn_masks
        if drawn_masks and drawn_masks[0].place is positions:
            return drawn_masks.popleft().keep
        self.forget()
        draws = MaskDraws()
        self.schedule(draws, positions, (*positions.shape, 1), ((columns + 1) // 2,))
        draws.run()
        return drawn_masks.popleft().keep[..., :columns]

    def has_mask_for(self, positions: Tensor) -> bool:
        """Return whether a mask drawn in advance is ready for the next call with the tensor `positions`."""
        return (
            (stream := self._stream) is not None
            and bool(drawn_masks := stream.drawn_masks)
            and drawn_masks[0].place is positions
        )

    def forget(self) -> None:
        """Discard masks drawn in advance, because the next call has other positions than expected."""
        if self._stream is not None:
            self._stream.calls -= len(self._stream.drawn_masks)
            self._stream.drawn_masks.clear()

    def add_mask(self, keep: Tensor, positions: Tensor, adjacent_mask: Tensor | None = None) -> None:
        """Store a mask for a later call with `positions`, after the masks that are already stored."""
        _current_stream(self).drawn_masks.append(_DrawnMask(keep, positions, adjacent_mask))

    def take(self) -> _DrawnMask:
        """Remove the first stored mask, which is that of the next call, and return it."""
        return _current_stream(self).drawn_masks.popleft()

    def schedule(
        self,
        draws: "MaskDraws",
        positions: Int[Tensor, "*M"],
        shape: tuple[int, ...],
        words: tuple[int, ...],
    ) -> None:
        """Schedule the mask of the next call at `positions`, which is reshaped to `shape`.

        `words` is the shape of the words of a token (`mask_draws.element_numbers`).
        """
        salt = call_salts(positions.device, self.draw(), words)

        def deliver(masks: list[Tensor]) -> None:
            self.add_mask(masks[0], positions)

        draws.add(positions.view(shape), salt, [(self.levels, salt.shape[-1])], deliver)

    def take_scheduled(self, positions: Tensor, columns: int) -> Bool[Tensor, "*K"] | None:
        """Return the scheduled mask if it was drawn for this `positions`, else discard it and return None."""
        if self.has_mask_for(positions):
            keep = self.take().keep
            return keep if keep.shape[-1] == columns else keep[..., :columns]
        self.forget()
        return None


def drop_adjacent(
    dropouts: tuple[KeyedDropout, KeyedDropout], x: Float[Tensor, "M C"], positions: Int[Tensor, " M"]
) -> Float[Tensor, "M C"]:
    """Apply the first of `dropouts` to the first columns of `x`, and the second to the other columns."""
    first = dropouts[0]
    if not first.active:
        return x
    return first.drop(x, take_adjacent_masks(dropouts, positions))


def take_adjacent_masks(
    dropouts: tuple[KeyedDropout, KeyedDropout], positions: Int[Tensor, " M"]
) -> Bool[Tensor, "M C"]:
    """Return the masks of both dropouts for this call, concatenated along the last axis."""
    for dropout in dropouts:
        if not dropout.has_mask_for(positions):
            DropoutGroup([dropout]).draw(positions)
    first_mask, second = (dropout.take() for dropout in dropouts)
    return (
        torch.cat((first_mask.keep, second.keep), -1)
        if first_mask.joint_mask is None
        else first_mask.joint_mask
    )


class DropoutGroup:
    """Dropouts of one part of a model whose masks are drawn by one hash."""

    def __init__(self, dropouts: Iterable[KeyedDropout], adjacent: tuple[KeyedDropout, ...] = ()) -> None:
        self._dropouts = tuple(dropouts)
        self._adjacent = adjacent
        self._salts: _Salts | None = None

    @classmethod
    def within(cls, part: nn.Module, adjacent: Iterable[KeyedDropout] = ()) -> "DropoutGroup":
        """Build the group of all dropouts of `part` that have `columns`.

        The masks of the two dropouts in `adjacent` lie next to each other in memory, so that one operation
        can apply both (`drop_adjacent`).
        """
        other_dropouts = [
            dropout for dropout in part.modules() if isinstance(dropout, KeyedDropout) and dropout.columns
        ]
        return cls(dict.fromkeys((*adjacent, *other_dropouts)), tuple(adjacent))

    def draw(self, positions: Int[Tensor, "*M"], columns: int | None = None) -> None:
        """Draw the masks of the next call of each dropout at `positions`; they equal separately drawn masks.

        The argument `columns` is used for dropouts that do not set their own.
        """
        draws = MaskDraws()
        self.schedule(draws, positions, columns)
        draws.run()

    def schedule(
        self,
        draws: "MaskDraws",
        positions: Int[Tensor, "*M"],
        columns: int | None = None,
    ) -> None:
        """Schedule in `draws` the masks of the next call of each dropout."""
        for dropout in self._dropouts:
            dropout.forget()
        active = [dropout for dropout in self._dropouts if dropout.active]
        if not active:
            return
        sizes = [dropout.columns or columns or 0 for dropout in active]
        salt = self._salt(active, tuple(sizes), positions.device)
        words = [(size + 1) // 2 for size in sizes]
        alike = len({dropout.levels for dropout in active}) == 1

        def deliver(masks: list[Tensor]) -> None:
            self._store_masks(active, sizes, positions, masks)

        levels = [dropout.levels for dropout in active]
        parts = [(levels[0], sum(words))] if alike else list(zip(levels, words, strict=True))
        draws.add(positions[..., None], salt, parts, deliver)

    def _store_masks(
        self,
        active: list[KeyedDropout],
        sizes: list[int],
        positions: Tensor,
        masks: list[Tensor],
    ) -> None:
        """Store the mask of each dropout; `masks` is one joint mask if all dropouts have the same rate."""
        joint_mask = None
        if len(masks) < len(active) or len(active) == 1:
            (joint,) = masks
            masks = list(joint.split_with_sizes([size + size % 2 for size in sizes], -1))
            if self._adjacent and self._adjacent[0] is active[0] and sizes[0] % 2 == 0:
                joint_mask = joint[..., : sizes[0] + sizes[1]]
        for dropout, size, mask in zip(active, sizes, masks, strict=True):
            dropout_mask = mask[..., :size] if size % 2 else mask
            dropout.add_mask(dropout_mask, positions, joint_mask if dropout is active[0] else None)

    def _salt(
        self, active: list[KeyedDropout], sizes: tuple[int, ...], device: torch.device
    ) -> Int[Tensor, " C"]:
        """Return the salts of this call; the salts of expected later calls are built together with them."""
        streams = [_current_stream(dropout) for dropout in active]
        call = streams[0].calls
        salts = self._salts
        if salts is None or not salts.has_next_call(streams, sizes, device):
            # Modules that draw at different calls have no common table.
            last_call = 0 if salts is None or any(stream.calls != call for stream in streams) else salts.last
            # A recomputed layer repeats earlier calls, so no further calls are expected.
            is_unchanged = salts is not None and salts.are_for(streams)
            count = 1 if is_unchanged else last_call + 1 - call
            salts = self._salts = _Salts.of(streams, sizes, device, max(1, count))
            salts.last = last_call if is_unchanged else 0
        salts.last = max(salts.last, call)
        for stream in streams:
            stream.calls += 1
        return salts.table[call - salts.first]


@dataclass
class _Salts:
    """Salts for consecutive calls of a group of dropouts, one row per call."""

    streams: list[_Stream]
    sizes: tuple[int, ...]
    first: int
    """Number of the call of the first row of `table`."""
    table: Int[Tensor, "K C"]
    last: int = 0
    """Number of the last call so far."""

    @classmethod
    def of(cls, streams: list[_Stream], sizes: tuple[int, ...], device: torch.device, calls: int) -> "_Salts":
        """Build the salts of the next `calls` calls."""
        words = tuple([(size + 1) // 2 for size in sizes])
        begin = streams[0].calls
        keys = np.array([[stream.key(call) for stream in streams] for call in range(begin, begin + calls)])
        table = salts_on(device, keys.repeat(words, 1), salt_numbers(words))
        return cls(streams, sizes, streams[0].calls, table)

    def are_for(self, streams: list[_Stream]) -> bool:
        """Return whether these salts were built for `streams`."""
        return len(streams) == len(self.streams) and all(map(is_, streams, self.streams))

    def has_next_call(self, streams: list[_Stream], sizes: tuple[int, ...], device: torch.device) -> bool:
        """Return whether the table contains the salts of the next call of `streams`."""
        return (
            self.are_for(streams)
            and all(stream.calls == streams[0].calls for stream in streams)
            and sizes == self.sizes
            and 0 <= streams[0].calls - self.first < self.table.shape[0]
            and self.table.device.type == device.type
        )


def salts_on(
    device: torch.device, key: Int[np.ndarray, "*K"] | int, number: Int[np.ndarray, "*C"]
) -> Int[Tensor, "*W"]:
    """Return `compute_salts(key, number)` on `device`; in a CUDA graph, the salts in its buffer."""
    shapes = constant_shapes()
    return (
        upload(compute_salts(key, number), device)
        if shapes is None
        else shapes.salts.table(key, number, device)
    )


def call_salts(device: torch.device, key: int, shape: tuple[int, ...]) -> Int[Tensor, "*W"]:
    """Return the salts of one call for words of `shape` (`mask_draws.element_numbers`), without an upload."""
    if (shapes := constant_shapes()) is not None:
        return shapes.salts.table(key, element_numbers(shape), device)
    # The 32-bit sum may overflow: salts are its lower bits, as in `compute_salts`.
    return (_element_numbers_on(device, shape) + (key & 0x7FFFFFFF)) ^ (key >> 32)


@cached_constants(maxsize=256)
def _element_numbers_on(device: torch.device, shape: tuple[int, ...]) -> Int[Tensor, "*W"]:
    return torch.from_numpy(element_numbers(shape).astype(np.int32)).to(device)


def set_dropout_context(model: nn.Module, seed: int, step: int, part: int = 0) -> None:
    """Start the random streams of all modules in `model` for one forward pass.

    This must be called before each forward pass in training. The same (seed, step, part) gives the same
    masks.

    Args:
        model: Model whose streams are started.
        seed: Seed of the trial.
        step: Number of the optimiser step.
        part: Number of the forward pass within the step (gradient accumulation). It affects only modules that
            draw independently of places.
    """
    for module, name in named_modules_of(model).items():
        if isinstance(module, Keyed):
            module.begin(seed, "dropout", step, 0 if module.by_place else part, name)


def stream_states(part: nn.Module) -> list[tuple[Keyed, Drawn]]:
    """Return every keyed module of `part` with its stream's state, which omits masks drawn in advance."""
    modules = (module for module in modules_of(part) if isinstance(module, Keyed))
    return [(module, (*module.drawn[:2], ())) for module in modules]


def skip_dropout_calls(model: nn.Module, call: int) -> None:
    """Let the next call of every keyed module in `model` count as call number `call`.

    This is needed where the number of calls depends on other rows of a batch, because masks must not.
    """
    for module in modules_of(model):
        if isinstance(module, Keyed):
            module.skip_to(call)


MIXED = 1 << 21
"""Maximum number of elements of a product of floats and bytes on a CPU; for more elements bytes are converted
first, because memory traffic dominates."""


class _Drop(Function):
    """x * keep * scale; only one byte per element is kept for the backward pass."""

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
    """other + x * keep * scale; only one byte per element is kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return torch.addcmul(residual, x, keep.view(torch.uint8), value=scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return grads[0], scaled(grads[0], keep, ctx.scale), None, None


def dropped(
    x: Float[Tensor, "*K"],
    keep: Bool[Tensor, "*K"],
    scale: float,
    residual: Float[Tensor, "*K"] | None = None,
) -> Float[Tensor, "*K"]:
    """Return x * keep * scale, added to `residual` if given."""
    result: Tensor = (
        _Drop.run(x, keep, scale) if residual is None else _DropOnto.run(residual, x, keep, scale)
    )
    return result


def scaled(x: Float[Tensor, "*K"], keep: Bool[Tensor, "*K"], scale: float) -> Float[Tensor, "*K"]:
    """Return x * keep * scale, not recorded by autograd."""
    if x.is_cuda:
        return torch.ops.aten.native_dropout_backward(x, keep, scale)  # type: ignore[no-any-return]
    # On a CPU, converting bytes to floats takes a tenth of the time of converting booleans.
    keep_bytes = keep.view(torch.uint8)
    if x.numel() > MIXED:
        keep_bytes = keep_bytes.to(x.dtype)
        return keep_bytes.mul_(x) if scale == 1 else torch.addcmul(_zero(x.dtype), x, keep_bytes, value=scale)
    return x * keep_bytes if scale == 1 else torch.addcmul(_zero(x.dtype), x, keep_bytes, value=scale)


@cached_constants(maxsize=None)
def _zero(dtype: torch.dtype) -> Tensor:
    return torch.zeros((), dtype=dtype)
