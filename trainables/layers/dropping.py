"""Elements that a mask leaves, scaled: functions with gradients that keep a byte an element."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trainables.layers.constant_shapes import cached_constants
from trainables.layers.host import Function

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
