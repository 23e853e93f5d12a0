"""Dropout whose masks are a function of names, independent of the order of draws.

The mask of element c of a token depends on (seed, step, part, qualified name of the module, number of the
call) through `trainables.streams`, and on the token's place in the full batch through an integer hash. A mask
is therefore that of the full batch, but only the required part of it is computed. Removed tokens and rows
cost nothing, padding has no effect, and two arms that share a module share its masks. Masks are the same on
every device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trainables.layers.constant_shapes import cached_constants, constant_shapes, split_key
from trainables.layers.host import Function, upload
from trainables.layers.mask_draws import (
    MASK_LEVELS,
    compute_keep_mask,
    element_numbers,
    joint_numbers,
    mix,
)
from trainables.seeds import derive

HALF_WORDS = 1 << 31


@dataclass
class _Stream:
    """Random stream of a module."""

    seed: int
    name: tuple[str | int, ...]
    calls: int = 0
    """Number of keys drawn so far."""
    prepared_mask: tuple[Tensor, Tensor] | None = None
    """Mask of the last counted call if it was drawn in advance, and the places of its tokens."""


StreamState = tuple[_Stream | None, int]
"""A stream (None before `begin`) and its number of calls."""


class KeyedModule(nn.Module):
    """A module that draws random numbers in a forward pass, with a separate key for each call."""

    draws_by_place: ClassVar[bool] = True
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
            self._stream.calls, self._stream.prepared_mask = call, None

    @property
    def stream_state(self) -> StreamState:
        """State of the stream; assigning an earlier state repeats the draws that followed it."""
        stream = self._stream
        return (None, 0) if stream is None else (stream, stream.calls - (stream.prepared_mask is not None))

    @stream_state.setter
    def stream_state(self, state: StreamState) -> None:
        self._stream, calls = state
        self.skip_to(calls)

    def draw(self) -> int:
        """Return the key of the next call. Raise ValueError if no stream was started."""
        stream = _current_stream(self)
        call, stream.calls = stream.calls, stream.calls + 1
        key = derive(stream.seed, *stream.name, call)
        if (shapes := constant_shapes()) is not None:
            shapes.keys.record_key(key, stream.name, call)
        return key


def _current_stream(module: KeyedModule) -> _Stream:
    if module._stream is None:
        raise ValueError(
            "dropout in training mode needs a random stream, got none;"
            " call set_dropout_context(model, seed, step) before the forward pass, or model.eval()"
        )
    return module._stream


class KeyedNoise(KeyedModule):
    """Uniform random numbers between 0 and 1, both excluded."""

    def forward(self, positions: Int[Tensor, " M"], columns: int) -> Float[Tensor, "M C"]:
        """Return `columns` numbers in 64 bits for each token, by its place in the full batch."""
        salt = call_salts(positions.device, self.draw(), (columns,))
        words = positions.to(torch.int32)[..., None] ^ salt
        mix(words)
        return (words.to(torch.float64) + (HALF_WORDS + 0.5)) / (2 * HALF_WORDS)


class KeyedDropout(KeyedModule):
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
        if not self.active:
            return x if residual is None else residual + x
        keep = self.take_mask(positions, x.shape[-1])
        result: Tensor = _Drop.run(x, keep, self.scale, residual)
        return result

    def take_mask(self, positions: Int[Tensor, "*M"], columns: int) -> Bool[Tensor, "*M C"]:
        """Return the mask of the next call, and count the call."""
        prepared_mask = _current_stream(self).prepared_mask
        if prepared_mask is None or prepared_mask[0] is not positions:
            self.discard_mask()
            return self.mask(self.draw(), positions[..., None], ((columns + 1) // 2,), columns)
        _current_stream(self).prepared_mask = None
        return prepared_mask[1]

    def discard_mask(self) -> None:
        """Discard a mask drawn in advance, because the next call has other positions than expected."""
        stream = _current_stream(self)
        if stream.prepared_mask is not None:
            self.skip_to(stream.calls - 1)


class DropoutGroup:
    """Dropouts of one part of a model whose masks are drawn by one hash."""

    def __init__(self, part: nn.Module) -> None:
        """Build the group of all dropouts of `part` that have `columns`."""
        self._dropouts = [
            dropout for dropout in part.modules() if isinstance(dropout, KeyedDropout) and dropout.columns
        ]

    def draw(self, positions: Int[Tensor, " M"]) -> None:
        """Draw the masks of the next call of each dropout; they equal separately drawn masks."""
        active = [dropout for dropout in self._dropouts if dropout.active]
        if not active:
            return
        for dropout in active:
            dropout.discard_mask()
        columns = [dropout.columns or 0 for dropout in active]
        counts = tuple([(size + 1) // 2 for size in columns])
        salts = joint_salts(positions.device, [dropout.draw() for dropout in active], counts)
        words = positions[..., None].to(torch.int32) ^ salts
        mix(words)
        masks = _split_masks(words, counts, [dropout.levels for dropout in active])
        for dropout, mask, size in zip(active, masks, columns, strict=True):
            _current_stream(dropout).prepared_mask = positions, mask[..., :size] if size % 2 else mask


def drop_both(
    dropouts: tuple[KeyedDropout, KeyedDropout], x: Float[Tensor, "M C"], positions: Int[Tensor, " M"]
) -> Float[Tensor, "M C"]:
    """Apply the first of `dropouts` to the first columns of `x`, and the second to the other columns.

    Both must have the same rate.
    """
    first = dropouts[0]
    if not first.active:
        return x
    masks = [dropout.take_mask(positions, dropout.columns or 0) for dropout in dropouts]
    result: Tensor = _Drop.run(x, torch.cat(masks, -1), first.scale, None)
    return result


def _split_masks(
    words: Int[Tensor, "M W"], counts: tuple[int, ...], levels: list[int]
) -> Sequence[Bool[Tensor, "M C"]]:
    """Return the masks that consecutive columns of `words` hold, given the number of words of each mask."""
    if len(set(levels)) == 1:
        return compute_keep_mask(words, levels[0]).split_with_sizes([2 * count for count in counts], -1)
    return list(map(compute_keep_mask, words.split_with_sizes(counts, -1), levels))


def joint_salts(device: torch.device, keys: list[int], counts: tuple[int, ...]) -> Int[Tensor, " W"]:
    """Return the salts of one call of several modules, concatenated; `counts` are their numbers of words."""
    if constant_shapes() is not None:
        salts_by_key = [call_salts(device, key, (count,)) for key, count in zip(keys, counts, strict=True)]
        return torch.cat(salts_by_key)
    low, high = np.array([split_key(key) for key in keys]).repeat(counts, 0).T
    salts = (joint_numbers(counts) + low) ^ high
    return upload(salts.astype(np.uint32).view(np.int32), device)


def call_salts(device: torch.device, key: int, shape: tuple[int, ...]) -> Int[Tensor, "*W"]:
    """Return the salts of one call for words of `shape` (`mask_draws.element_numbers`).

    They are combined with places before hashing. The 32-bit sum may overflow.
    """
    shapes = constant_shapes()
    low, high = split_key(key) if shapes is None else shapes.keys.split(key)
    return (element_numbers(shape, device) + low) ^ high


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
    for name, module in model.named_modules():
        if isinstance(module, KeyedModule):
            module.begin(seed, "dropout", step, 0 if module.draws_by_place else part, name)


def stream_states(part: nn.Module) -> list[tuple[KeyedModule, StreamState]]:
    """Return every keyed module of `part` with its stream's state."""
    return [(module, module.stream_state) for module in part.modules() if isinstance(module, KeyedModule)]


def skip_dropout_calls(model: nn.Module, call: int) -> None:
    """Let the next call of every keyed module in `model` count as call number `call`.

    This is needed where the number of calls depends on other rows of a batch, because masks must not.
    """
    for module in model.modules():
        if isinstance(module, KeyedModule):
            module.skip_to(call)


MIXED_PRODUCT_MAX = 1 << 21
"""Maximum number of elements of a product of floats and bytes on a CPU; for more elements bytes are converted
first, because memory traffic dominates."""


class _Drop(Function):
    """x * keep * scale, added to `residual` if given; the backward pass needs only one byte per element."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, scale: float, residual: Tensor | None) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale, ctx.is_added = scale, residual is not None
        if residual is None:
            return scaled(x, keep, scale)
        return torch.addcmul(residual, x, keep.view(torch.uint8), value=scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (keep,) = ctx.saved_tensors
        return scaled(grads[0], keep, ctx.scale), None, None, grads[0] if ctx.is_added else None


def scaled(x: Float[Tensor, "*K"], keep: Bool[Tensor, "*K"], scale: float) -> Float[Tensor, "*K"]:
    """Return x * keep * scale, not recorded by autograd."""
    if x.is_cuda:
        return torch.ops.aten.native_dropout_backward(x, keep, scale)  # type: ignore[no-any-return]
    # On a CPU, converting bytes to floats takes a tenth of the time of converting booleans.
    keep_bytes = keep.view(torch.uint8)
    if x.numel() > MIXED_PRODUCT_MAX:
        keep_bytes = keep_bytes.to(x.dtype)
        return keep_bytes.mul_(x) if scale == 1 else torch.addcmul(_zero(x.dtype), x, keep_bytes, value=scale)
    return x * keep_bytes if scale == 1 else torch.addcmul(_zero(x.dtype), x, keep_bytes, value=scale)


@cached_constants(maxsize=None)
def _zero(dtype: torch.dtype) -> Tensor:
    return torch.zeros((), dtype=dtype)
