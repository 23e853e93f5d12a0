"""One layer of `layers.block` as a function of tensors: the twin that is compiled.

Legend: M packed tokens in B rows of T columns, H heads of width E, K keys of a row, L packed keys, D the
width of a state.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from trainables.regions.compiling import region
from trainables.regions.heads import Turning, gather, spread, spread_queries, turned
from trainables.regions.masks import ElementMask, WeightMask, drop
from trainables.regions.rows import RowPlaces, require_alike


class Affine(NamedTuple):
    """A norm, or a linear map with a bias."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, module: Any) -> "Affine":
        """Those of a module."""
        return cls(module.weight, module.bias)


class Dropped(NamedTuple):
    """Masks of one pass through a layer; None where nothing is dropped."""

    weights: WeightMask | None
    attended: ElementMask | None
    recall_weights: WeightMask | None
    recalled: ElementMask | None
    inner: ElementMask | None
    outer: ElementMask | None
    gate_inner: ElementMask | None
    gate: ElementMask | None


class Weights(NamedTuple):
    """Of a layer."""

    norm: Affine
    first: Tensor
    """Queries, keys and values; queries alone where keys and values are given."""
    output: Tensor
    feedforward_norm: Affine
    inner: Affine
    """Of the feed-forward and of the gate, if there is one."""
    outer: Affine
    gate: Affine | None
    recall_norm: Affine | None
    recall_query: Tensor | None
    recall_output: Tensor | None


class GivenKeys(NamedTuple):
    """Rotated keys, and values, that are given."""

    keys: Float[Tensor, "L H E"] | None
    values: Float[Tensor, "L H E"] | None
    both: Float[Tensor, "L 2 H E"] | None
    """In the place of these."""
    rows_token: Int[Tensor, "B K"]
    rows_place: Int[Tensor, " L"]
    rows_mask: Bool[Tensor, "B K"]

    @property
    def rows(self) -> RowPlaces:
        """Of the keys."""
        return RowPlaces(self.rows_token, self.rows_place, self.rows_mask)


class Where(NamedTuple):
    """Places of tokens, and what they see."""

    rows: RowPlaces
    place: Int[Tensor, " M"]
    """In the full batch, as masks read it."""
    turning: Turning | None
    """None without rotary positions."""
    reach: Int[Tensor, " M"] | None
    """Causal: how many of the first keys each sees."""
    seen: GivenKeys | None
    """What tokens attend to, if not to each other."""
    recalled: GivenKeys | None
    """What cross-attention is to."""


class LayerParts(NamedTuple):
    """All that a pass through a layer needs beside states."""

    weights: Weights
    where: Where
    dropped: Dropped


@region
def layer(
    x: Float[Tensor, "M D"], weights: Weights, where: Where, dropped: Dropped, *, heads: int
) -> Float[Tensor, "M D"]:
    """States one layer on."""
    return layer_of_normed(x, normed(x, weights.norm), LayerParts(weights, where, dropped), heads=heads)


def layer_of_normed(
    x: Float[Tensor, "M D"], z: Float[Tensor, "M D"], parts: LayerParts, *, heads: int
) -> Float[Tensor, "M D"]:
    """The same of states `x`, normed as `z`."""
    weights, where, dropped = parts
    seen, kept = where.seen, dropped.weights
    made = F.linear(z, weights.first).view(x.shape[0], 1 if seen else 3, heads, -1)
    if seen is None:
        q, k, v = spread(made, where.turning, where.rows, queries=True, copies=_copies(kept))
        visible = _visible(where.rows.mask, where, kept)
    else:
        q = spread_queries(made, where.turning, where.rows)
        k, v = _given(seen, kept)
        visible = _visible(seen.rows.mask, where, kept)
    found = _attended((q, k, v), visible, where, kept)
    attended = x + drop(F.linear(found, weights.output), dropped.attended, where.place)
    if where.recalled is not None:
        attended = attended + _recalled(attended, weights, where, dropped, heads)
    inner = F.linear(normed(attended, weights.feedforward_norm), *weights.inner)
    size = weights.outer.weight.shape[1]
    if weights.gate is None:
        inner = F.gelu(drop(inner, dropped.inner, where.place))
        return attended + drop(F.linear(inner, *weights.outer), dropped.outer, where.place)
    sizes = [size, inner.shape[1] - size]
    if dropped.inner is not None and dropped.gate_inner is not None:
        masks = zip((dropped.inner, dropped.gate_inner), sizes, strict=True)
        beside = [mask.keep(where.place, columns) for mask, columns in masks]
        inner = inner * torch.cat(beside, 1).to(inner.dtype) * dropped.inner.scale
    fed, opening = torch.split(F.gelu(inner), sizes, 1)
    fed = drop(F.linear(fed, *weights.outer), dropped.outer, where.place)
    opening = drop(F.linear(opening, *weights.gate), dropped.gate, where.place).sigmoid()
    return torch.addcmul(x, opening, attended + fed - x)


class Mixing(NamedTuple):
    """What makes mixtures of states (`recurrence.depth_units`)."""

    mixed: Float[Tensor, "M D"]
    """The sum over the states before."""
    share: Float[Tensor, "M 1"]
    """Of the last states."""


@region
def keys_beside_values(
    x: Float[Tensor, "M D"],
    norm: Affine,
    weight: Tensor,
    turning: Turning | None,
    mixing: Mixing | None,
    *,
    heads: int,
) -> Float[Tensor, "M 2 H E"]:
    """Keys, rotated if they are at all, and values of tokens with states `x`, or with mixtures of these, in
    one tensor."""
    if mixing is not None:
        x = torch.addcmul(mixing.mixed, mixing.share, x)
    return keys_of_normed(normed(x, norm), weight, turning, heads=heads)


def keys_of_normed(
    z: Float[Tensor, "M D"], weight: Tensor, turning: Turning | None, *, heads: int
) -> Float[Tensor, "M 2 H E"]:
    """The same of states that are normed."""
    both = F.linear(z, weight).view(z.shape[0], 2, heads, -1)
    return turned(both, None if turning is None else turning.of(1, 2))


class UpdateWeights(NamedTuple):
    """Of a layer by which slots take in states."""

    norm: Affine
    query: Tensor
    source_norm: Affine
    keys_values: Tensor
    output: Tensor
    feedforward_norm: Affine
    inner: Affine
    outer: Affine


class UpdatePlaces(NamedTuple):
    """Places of slots, and of what they take in."""

    slots: RowPlaces
    place: Int[Tensor, " M"]
    """Of slots, as masks read it."""
    taken: RowPlaces


@region
def updated(
    slots: Float[Tensor, "M D"],
    states: Float[Tensor, "L D"],
    weights: UpdateWeights,
    places: UpdatePlaces,
    dropped: Dropped,
    *,
    heads: int,
) -> Float[Tensor, "M D"]:
    """Slots of memory after a layer by which they take in `states`."""
    where, kept = Where(places.slots, places.place, None, None, None, None), dropped.weights
    kv = F.linear(normed(states, weights.source_norm), weights.keys_values).view(
        states.shape[0], 2, heads, -1
    )
    k, v = spread(kv, None, places.taken, queries=False, copies=_copies(kept))
    asked = F.linear(normed(slots, weights.norm), weights.query).view(slots.shape[0], 1, heads, -1)
    q = spread_queries(asked, None, places.slots)
    found = _attended((q, k, v), _visible(places.taken.mask, where, kept), where, kept)
    slots = slots + drop(F.linear(found, weights.output), dropped.attended, where.place)
    hidden = F.linear(normed(slots, weights.feedforward_norm), *weights.inner)
    hidden = F.gelu(drop(hidden, dropped.inner, where.place))
    return slots + drop(F.linear(hidden, *weights.outer), dropped.outer, where.place)


def _recalled(x: Tensor, weights: Weights, where: Where, dropped: Dropped, heads: int) -> Tensor:
    recalled = where.recalled
    assert recalled is not None
    assert weights.recall_norm is not None
    assert weights.recall_query is not None
    assert weights.recall_output is not None
    kept, every = dropped.recall_weights, where._replace(reach=None)
    asked = F.linear(normed(x, weights.recall_norm), weights.recall_query).view(x.shape[0], 1, heads, -1)
    k, v = _given(recalled, kept)
    q = spread_queries(asked, None, where.rows)
    found = _attended((q, k, v), _visible(recalled.rows.mask, every, kept), where, kept)
    return drop(F.linear(found, weights.recall_output), dropped.recalled, where.place)


def _copies(kept: WeightMask | None) -> int:
    """Of every key: a second one that has no value takes the weight that is dropped.

    So one softmax over all is that over keys, and attention with weights dropped is a fused kernel too.
    """
    return 1 if kept is None else 2


def _given(
    seen: GivenKeys, kept: WeightMask | None
) -> tuple[Float[Tensor, "B K H E"], Float[Tensor, "B K H E"]]:
    both = seen.both
    if both is None:
        assert seen.keys is not None
        assert seen.values is not None
        both = torch.stack((seen.keys, seen.values), 1)
    keys, values = spread(both, None, seen.rows, queries=False, copies=_copies(kept))
    return keys, values


def _visible(keys: Bool[Tensor, "B K"], where: Where, kept: WeightMask | None) -> Bool[Tensor, "B ... CK"]:
    """Which keys, or copies of keys, each query sees."""
    copies, rows = _copies(kept), where.rows
    require_alike(keys.shape[:1], rows.token.shape[:1])
    number = torch.arange(keys.shape[1] * copies, device=keys.device)
    if where.reach is None:
        visible = keys[:, None, None, :, None].expand(-1, -1, -1, -1, copies).flatten(3)
    else:
        # Padding reaches as far as the last token of its row, so that it reaches something.
        upto = where.reach.index_select(0, rows.token.flatten()).view(rows.token.shape)
        visible = (number // copies < upto[..., None])[:, None]
    if kept is None:
        return visible
    place = where.place.index_select(0, rows.token.flatten()).view(rows.token.shape)
    return visible & (kept.keep(place, number // copies) == (number % copies == 0))


def _attended(
    qkv: tuple[Float[Tensor, "B T H E"], ...],
    visible: Bool[Tensor, "B ... CK"],
    where: Where,
    kept: WeightMask | None,
) -> Float[Tensor, "M D"]:
    """softmax(q k^T / sqrt(E)) v over visible keys, of tokens."""
    q, k, v = qkv
    found = F.scaled_dot_product_attention(
        q.to(v.dtype).transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=visible
    )
    out = gather(found.transpose(1, 2), where.rows)
    return out if kept is None else out * kept.scale


def normed(x: Float[Tensor, "*M D"], norm: Affine) -> Float[Tensor, "*M D"]:
    """By the mean and the variance of each."""
    return F.layer_norm(x, (x.shape[-1],), norm.weight, norm.bias)
