"""One step of the Neural Data Router (`models.ndr`) as a function of tensors: the twin that is compiled.

Legend: M packed tokens in B rows of T columns, H heads of width E, D the width of a state.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from trainables.regions.block import Affine, normed
from trainables.regions.compiling import region
from trainables.regions.heads import gather, spread, spread_queries
from trainables.regions.masks import ElementMask, drop
from trainables.regions.rows import RowPlaces, exact, require_alike


class RoutingWeights(NamedTuple):
    """Of geometric attention (`layers.geometric`)."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    content_bias: Tensor
    scale: Tensor
    bias: Tensor
    direction: Affine | None
    """By which queries prefer what comes before or after them."""
    direction_scale: Tensor | None


class RouterWeights(NamedTuple):
    """Of a layer."""

    attention: RoutingWeights
    attention_norm: Affine
    inner: Affine
    outer: Affine
    norm: Affine | None
    """What bounds a proposed state; a tanh if there is none."""
    gate_inner: Affine | None
    gate_outer: Affine | None


class RouterDropped(NamedTuple):
    """Masks of one pass through a layer; None where nothing is dropped."""

    keys: ElementMask | None
    attended: ElementMask | None
    inner: ElementMask | None
    outer: ElementMask | None
    gate_inner: ElementMask | None
    gate: ElementMask | None
    """Of one element, the gate of a position as a whole; what stays is not scaled."""


class _NearestWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, normalise: bool) -> Tensor:
        # The default threshold of softplus changes results in 64 bits.
        logs = logits - tried_up_to(F.softplus(logits, threshold=40))
        weights = logs.softmax(-1) if normalise else logs.exp()
        ctx.save_for_backward(logits, weights)
        ctx.normalise = normalise
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        logits, weights = ctx.saved_tensors
        grad = grads[0] * weights
        if ctx.normalise:
            grad = grad - weights * grad.sum(-1, keepdim=True)
        behind = grad.sum(-1, keepdim=True) - tried_up_to(grad) + grad
        return grad - behind * logits.sigmoid(), None


def nearest_weights(logits: Float[Tensor, "B H T T"], *, normalise: bool) -> Float[Tensor, "B H T T"]:
    """A of `layers.geometric`, its rows summing to one if they are to be normalised; logits of keys that are
    not seen are minus infinity."""
    found: Tensor = _NearestWeights.apply(logits, normalise)  # type: ignore[no-untyped-call]
    return found


def tried_up_to(x: Float[Tensor, "B H T T"]) -> Float[Tensor, "B H T T"]:
    """Sums over the keys that a query tries up to and including each, the nearest first, the right one of
    two; its own key, whose sum is of no use, must have zero.

    No table of orders is needed: these keys are those from the query up to the key on its side, and on the
    other side those that are nearer, with the one as far to the right of a key to the left.
    """
    here = torch.arange(x.shape[-1], device=x.device)
    query = here[:, None]
    later, earlier = here > query, here < query
    right = torch.where(later, x, 0.0).cumsum(-1)
    left = torch.where(earlier, x, 0.0).flip(-1).cumsum(-1).flip(-1)
    # Each is zero on the other side, and at the query.
    side = right + left
    opposite = (2 * query - here + later).clamp(0, x.shape[-1] - 1)
    return side + side.gather(-1, opposite.expand_as(x))


@region
def routed(
    x: Float[Tensor, "M D"],
    weights: RouterWeights,
    rows: RowPlaces,
    place: Int[Tensor, " M"],
    kept: RouterDropped,
    *,
    heads: int,
    normalise: bool,
) -> Float[Tensor, "M D"]:
    """States one step on."""
    found = _attended(x, weights.attention, rows, place, kept.keys, heads=heads, normalise=normalise)
    seen = normed(x + drop(found, kept.attended, place), weights.attention_norm)
    inner = drop(F.linear(seen, *weights.inner).relu(), kept.inner, place)
    proposed = F.linear(inner, *weights.outer)
    if weights.gate_inner is None or weights.gate_outer is None:
        return _bounded(seen + drop(proposed, kept.outer, place), weights.norm)
    inner = drop(F.linear(seen, *weights.gate_inner).relu(), kept.gate_inner, place)
    opening = F.linear(inner, *weights.gate_outer).sigmoid()
    if kept.gate is not None:
        opening = opening * kept.gate.keep(place, 1).to(opening.dtype)
    return torch.addcmul(x, opening, _bounded(proposed, weights.norm) - x)


def _bounded(x: Tensor, norm: Affine | None) -> Tensor:
    return x.tanh() if norm is None else normed(x, norm)


def _attended(
    x: Float[Tensor, "M D"],
    weights: RoutingWeights,
    rows: RowPlaces,
    place: Int[Tensor, " M"],
    kept: ElementMask | None,
    *,
    heads: int,
    normalise: bool,
) -> Float[Tensor, "M D"]:
    """What each token gathers from its row."""
    tokens = x.shape[0]
    queries = F.linear(x, weights.query).view(tokens, heads, -1)
    queries = (queries + weights.content_bias.to(x.dtype)) * weights.scale.to(x.dtype)
    keys = drop(F.linear(x, weights.key), kept, place).view(queries.shape)
    values = F.linear(x, weights.value).view(queries.shape)
    made = torch.stack((queries.to(values.dtype), keys.to(values.dtype), values), 1)
    wide = spread(made, None, rows, queries=True, copies=1)
    q, k, v = (each.transpose(1, 2) for each in wide)
    content = q @ k.transpose(2, 3)
    logits = content.to(exact(content.dtype)) + _preference(x, weights, rows, heads).to(exact(content.dtype))
    require_alike(rows.mask.shape, rows.token.shape)
    here = torch.arange(rows.mask.shape[1], device=x.device)
    visible = rows.mask[:, None, None] & (here != here[:, None])
    logits = torch.where(visible, logits, float("-inf"))
    found = nearest_weights(logits, normalise=normalise)
    return F.linear(gather((found.to(v.dtype) @ v).transpose(1, 2), rows), weights.output)


def _preference(
    x: Float[Tensor, "M D"], weights: RoutingWeights, rows: RowPlaces, heads: int
) -> Float[Tensor, "B H T T"] | Float[Tensor, " 1"]:
    """What is added to the logit of each pair beside its content."""
    if weights.direction is None or weights.direction_scale is None:
        return weights.bias
    both = F.linear(x, *weights.direction) * weights.direction_scale
    both = spread_queries(both.view(x.shape[0], 1, heads, 2), None, rows).transpose(1, 2)
    here = torch.arange(rows.token.shape[1], device=x.device)
    sides = both.to(exact(both.dtype)).unbind(-1)
    before, after = (each[..., None] for each in sides)
    return torch.where(here > here[:, None], after, before) + weights.bias
