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
from trainables.layers.head_rows import Factor, HeadRows, factors_of_all, moved, put_back, turn
from trainables.layers.packing import Packing, PaddedRows
from trainables.layers.stacked import for_all, stacked
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
        weights = _weights(q, k, scale, bias, barred)
        ctx.save_for_backward(q, k, v, weights, keep)
        ctx.scale, ctx.keep_scale, ctx.biased = scale, keep_scale, bias is not None
        return product(left(weights, keep).to(v.dtype), v, keep_scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, keep = ctx.saved_tensors
        grad_v = _of_values(grads[0], v, weights, keep, ctx.keep_scale)
        scores = of_logits(grads[0], v, weights, keep, ctx.keep_scale).to(q.dtype)
        grad_q = product(scores, k, ctx.scale)
        grad_k = product(scores.transpose(1, 2), q, ctx.scale)
        return grad_q, grad_k, grad_v, scores if ctx.biased else None, None, None, None


def _weights(q: Tensor, k: Tensor, scale: float, bias: Tensor | None, barred: Tensor | None) -> Tensor:
    scores = _scores(q, k, scale, bias, barred)
    return scores.softmax(-1, dtype=sum_dtype(scores.dtype))


def of_logits(grad: Tensor, v: Tensor, weights: Tensor, keep: Tensor | None, scale: float) -> Tensor:
    """The gradient of the logits."""
    found = product(grad, v.transpose(1, 2), scale).to(weights.dtype)
    if keep is not None:
        found.mul_(keep.view(torch.uint8))
    return torch._softmax_backward_data(found, weights, -1, weights.dtype)


def _of_values(  # noqa: PLR0917 in the order of the pass
    grad: Tensor, v: Tensor, weights: Tensor, keep: Tensor | None, scale: float, out: Tensor | None = None
) -> Tensor:
    return product(left(weights, keep).to(v.dtype).transpose(1, 2), grad, scale, out)


class _Packed(torch.autograd.Function):
    """Of packed rows of heads, moved to the layout of batched products and back in the same function.

    `x` holds the queries alone, where keys and values are given in that layout, or all three.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 autograd takes no keywords
        ctx: Any,
        x: Tensor,
        given: Tensor | None,
        places: tuple[HeadRows, HeadRows],
        factors: tuple[Factor, Factor] | None,
        barred: Tensor | None,
        keep: Tensor | None,
        keep_scale: float,
    ) -> Tensor:
        parts = moved(x, places[0], None if factors is None else factors[0])
        q, k, v = _three(parts, given)
        scale = q.shape[-1] ** -0.5
        weights = _weights(q, k, scale, None, barred)
        ctx.save_for_backward(parts, given, weights, keep)
        ctx.scale, ctx.keep_scale, ctx.shape = scale, keep_scale, x.shape
        ctx.places, ctx.factors = places, factors
        found = product(left(weights, keep).to(v.dtype), v, keep_scale)
        rows = found.reshape(-1, found.shape[-1]).index_select(0, places[1].back)
        return rows.view(x.shape[0], *x.shape[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        parts, given, weights, keep = ctx.saved_tensors
        q, k, v = _three(parts, given)
        wide = put_back(grads[0], ctx.places[1]).view(q.shape)
        # What is as large as the weights comes first and goes before the next of its kind.
        scores = of_logits(wide, v, weights, keep, ctx.keep_scale).to(q.dtype)
        if not wide.is_cuda and wide.shape[-1] < NARROW:
            into: tuple[Tensor | None, ...] = (None, None, None)
        else:
            made = torch.empty_like(parts)
            others = None if given is None else torch.empty_like(given)
            into = _three(made, others)
        grad_q = product(scores, k, ctx.scale, into[0])
        grad_k = product(scores.transpose(1, 2), q, ctx.scale, into[1])
        del scores
        grad_v = _of_values(wide, v, weights, keep, ctx.keep_scale, into[2])
        if into[0] is None:
            found = (grad_q, grad_k, grad_v) if given is None else (grad_q,)
            made = torch.stack(found).view(parts.shape)
            others = None if given is None else torch.stack((grad_k, grad_v)).view(given.shape)
        if ctx.factors is not None:
            turn(made, ctx.factors[1])
        packed = made.view(-1, made.shape[-1]).index_select(0, ctx.places[0].back).view(ctx.shape)
        return packed, others, None, None, None, None, None


def _three(parts: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of all rows and heads."""
    others = () if given is None else given.flatten(1, 2).unbind(0)
    q, k, v = (*parts.flatten(1, 2).unbind(0), *others)
    return q, k, v


def _scores(q: Tensor, k: Tensor, scale: float, bias: Tensor | None, barred: Tensor | None) -> Tensor:
    """One product with its sum, where what is added can stand at its beginning."""
    keys = k.transpose(1, 2)
    if bias is None and barred is not None and barred.shape[0] * barred.shape[1] == q.shape[0]:
        first = barred.flatten(0, 1).expand(-1, q.shape[1], -1)
        return torch.baddbmm(first, q, keys, alpha=scale)
    scores = product(q, keys, scale) if bias is None else torch.baddbmm(bias, q, keys, alpha=scale)
    if barred is not None:
        scores.view(barred.shape[0], -1, *scores.shape[1:]).add_(barred)
    return scores


def product(
    one: Float[Tensor, "N T K"],
    other: Float[Tensor, "N K E"],
    scale: float = 1.0,
    out: Float[Tensor, "N T E"] | None = None,
) -> Float[Tensor, "N T E"]:
    """scale * one @ other, written into `out` if that is given."""
    if not one.is_cuda and other.shape[2] < NARROW < one.shape[1]:
        found = product(other.transpose(1, 2), one.transpose(1, 2), scale).transpose(1, 2)
        return found if out is None else out.copy_(found)
    if scale == 1:
        return torch.bmm(one, other, out=out)
    return torch.baddbmm(one.new_empty((1, 1, 1)), one, other, beta=0, alpha=scale, out=out)


def left(weights: Tensor, keep: Tensor | None) -> Tensor:
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


def explicit_packed(
    x: Float[Tensor, "M P H E"],
    packing: Packing,
    given: Float[Tensor, "2 B H K E"] | None = None,
    *,
    factors: tuple[Factor, Factor] | None = None,
    barred: Barred | None = None,
    kept: KeptWeights | None = None,
) -> Float[Tensor, "M H E"]:
    """The same of packed tokens: of queries alone to `given` keys and values, or of all three.

    `factors` are what parts of `x` are multiplied by, and its conjugate (`layers.head_rows`).
    """
    if stacked():
        assert isinstance(packing, PaddedRows), "members of a stack have padded rows"

        def of_all(x: Tensor, given: Tensor | None, barred: Barred | None, keep: Tensor | None) -> Tensor:
            members = x.shape[0]
            found = explicit_packed(
                x.flatten(0, 1),
                packing.rows_of_all(members),
                None if given is None else given.transpose(0, 1).flatten(1, 2),
                factors=factors_of_all(packing, factors, members),
                barred=None if barred is None else barred.flatten(0, 1),
                kept=None if kept is None or keep is None else KeptWeights(keep.flatten(0, 1), kept.scale),
            )
            return found.view(members, -1, *found.shape[1:])

        return for_all(of_all, x, given, barred, None if kept is None else kept.keep)
    _, parts, heads, _ = x.shape
    places = HeadRows.of(packing, heads, parts), HeadRows.of(packing, heads)
    keep = None if kept is None else kept.keep.flatten(0, 1)
    scale = 1.0 if kept is None else kept.scale
    found: Tensor = _Packed.apply(x, given, places, factors, barred, keep, scale)  # type: ignore[no-untyped-call]
    return found
