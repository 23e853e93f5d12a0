"""The explicit product of attention, with a backward pass that keeps little.

softmax(scale * q k^T + bias + barred) v, some weights dropped. Beside its inputs only the weights and a byte
for each element of the mask are kept; what dropout made of them is made again.

Legend: N = B H heads of width E of all rows, T queries, K keys.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trainables.layers.dropout import scaled
from trainables.types import sum_dtype

Barred = Float[Tensor, "B #H #T K"]
"""Minus infinity for keys that queries do not see, else zero: what is added to logits."""


NARROW = 16
"""Columns from which on the kernels of a CPU take a result as it is; of fewer they make the transposed one in
a third of the time."""


@dataclass(frozen=True)
class KeptWeights:
    """Which weights dropout leaves, and what they are multiplied by."""

    keep: Bool[Tensor, "B H T K"]
    scale: float


class _Explicit(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 autograd takes no keywords
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        barred: Tensor | None,
        keep: Tensor | None,
        keep_scale: float,
    ) -> Tensor:
        scale = q.shape[-1] ** -0.5
        scores = _scores(q, k, scale, bias, barred)
        weights = scores.softmax(-1, dtype=sum_dtype(scores.dtype))
        ctx.save_for_backward(q, k, v, weights, keep)
        ctx.scale, ctx.keep_scale, ctx.biased = scale, keep_scale, bias is not None
        return _product(_left(weights, keep).to(v.dtype), v, keep_scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, keep = ctx.saved_tensors
        (grad,) = grads
        grad_v = _product(_left(weights, keep).to(v.dtype).transpose(1, 2), grad, ctx.keep_scale)
        found = _product(grad, v.transpose(1, 2), ctx.keep_scale).to(weights.dtype)
        found = _left(found, keep)
        scores = torch._softmax_backward_data(found, weights, -1, weights.dtype).to(q.dtype)
        grad_q = _product(scores, k, ctx.scale)
        grad_k = _product(scores.transpose(1, 2), q, ctx.scale)
        return grad_q, grad_k, grad_v, scores if ctx.biased else None, None, None, None


def _scores(q: Tensor, k: Tensor, scale: float, bias: Tensor | None, barred: Tensor | None) -> Tensor:
    """One product with its sum, where what is added can stand at its beginning."""
    keys = k.transpose(1, 2)
    if bias is None and barred is not None and barred.shape[0] * barred.shape[1] == q.shape[0]:
        first = barred.flatten(0, 1).expand(-1, q.shape[1], -1)
        return torch.baddbmm(first, q, keys, alpha=scale)
    scores = _product(q, keys, scale) if bias is None else torch.baddbmm(bias, q, keys, alpha=scale)
    if barred is not None:
        scores.view(barred.shape[0], -1, *scores.shape[1:]).add_(barred)
    return scores


def _product(
    one: Float[Tensor, "N T K"], other: Float[Tensor, "N K E"], scale: float = 1.0
) -> Float[Tensor, "N T E"]:
    """scale * one @ other."""
    if not one.is_cuda and other.shape[2] < NARROW < one.shape[1]:
        return _product(other.transpose(1, 2), one.transpose(1, 2), scale).transpose(1, 2)
    if scale == 1:
        return torch.bmm(one, other)
    return torch.baddbmm(one.new_empty((1, 1, 1)), one, other, beta=0, alpha=scale)


def _left(weights: Tensor, keep: Tensor | None) -> Tensor:
    """`weights` that dropout leaves, not scaled yet: that is done by the product they go into."""
    return weights if keep is None else scaled(weights, keep, 1.0)


def explicit(
    q: Float[Tensor, "B H T E"],
    k: Float[Tensor, "B H K E"],
    v: Float[Tensor, "B H K E"],
    *,
    barred: Barred | None = None,
    bias: Float[Tensor, "B H T K"] | None = None,
    kept: KeptWeights | None = None,
) -> Float[Tensor, "B H T E"]:
    """Attention of every query."""
    flat = [x.flatten(0, 1) for x in (q, k, v)]
    bias = None if bias is None else bias.flatten(0, 1)
    keep = None if kept is None else kept.keep.flatten(0, 1)
    scale = 1.0 if kept is None else kept.scale
    out: Tensor = _Explicit.apply(*flat, bias, barred, keep, scale)  # type: ignore[no-untyped-call]
    return out.view(q.shape)
