"""One layer of `layers.block` as a function of tensors: the twin that is compiled.

Legend: M packed tokens in B rows of T columns, H heads of width E, K keys of a row, L packed keys, D the
width of a state.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from trainables.regions.compiling import region
from trainables.regions.masks import ElementMask, WeightMask
from trainables.regions.rows import RowPlaces, exact, gather, require_alike, spread


class Affine(NamedTuple):
    """A norm, or a linear map with a bias."""

    weight: Tensor
    bias: Tensor


class Dropped(NamedTuple):
    """Masks of one pass through a layer; None where nothing is dropped."""

    weights: WeightMask | None
    attended: ElementMask | None
    recall_weights: WeightMask | None
    recalled: ElementMask | None
    inner: ElementMask | None
    outer: ElementMask | None
    gate: ElementMask | None


class Recalling(NamedTuple):
    """Padded keys and values that cross-attention is to."""

    keys: Float[Tensor, "B H K E"]
    values: Float[Tensor, "B H K E"]
    mask: Bool[Tensor, "B K"]


class Joined(NamedTuple):
    """All weights of a layer, one after the other: two kernels add its gradient to those of other passes."""

    matrices: Tensor
    """First, output, inner, outer, of the gate; query and output of cross-attention."""
    vectors: Tensor
    """Weights and biases of both norms, biases of inner, outer and gate; the norm of cross-attention."""


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

    keys: Float[Tensor, "L H E"]
    values: Float[Tensor, "L H E"]
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
    query_rotation: Float[Tensor, "M half 2"] | None
    """Cosines and sines, scaled; None without rotary positions."""
    key_rotation: Float[Tensor, "M half 2"] | None
    reach: Int[Tensor, " M"] | None
    """Causal: how many of the first keys each sees."""
    seen: GivenKeys | None
    """What tokens attend to, if not to each other."""


@region
def layer(
    x: Float[Tensor, "M D"],
    given: Joined,
    where: Where,
    dropped: Dropped,
    recalling: Recalling | None,
    *,
    shapes: tuple[tuple[int, int], ...],
    gated: bool,
    heads: int,
    fused: bool,
) -> Float[Tensor, "M D"]:
    """States one layer on.

    `shapes` are those of the matrices; `fused`: attention is one kernel.
    """
    weights = _parted(given, shapes, gated=gated)
    z, seen = _normed(x, weights.norm), where.seen
    if seen is None:
        qkv = F.linear(z, weights.first).view(x.shape[0], 3, heads, -1)
        q, k, v = spread(qkv, where.rows).unbind(0)
        q, k = _turned(q, where.query_rotation, where.rows), _turned(k, where.key_rotation, where.rows)
        keys = where.rows.mask
    else:
        q = spread(F.linear(z, weights.first).view(x.shape[0], 1, heads, -1), where.rows)[0]
        q = _turned(q, where.query_rotation, where.rows).to(seen.values.dtype)
        k, v = spread(torch.stack((seen.keys, seen.values), 1), seen.rows).unbind(0)
        keys = seen.rows.mask
    visible = _visible(where, keys)
    found = gather(_attended(q, k, v, visible, dropped.weights, fused=fused), heads, where.rows)
    attended = x + _dropped(F.linear(found, weights.output), dropped.attended)
    if recalling is not None:
        attended = attended + _recalled(attended, weights, recalling, where.rows, dropped, fused=fused)
    z = _normed(attended, weights.feedforward_norm)
    inner = F.gelu(_dropped(F.linear(z, *weights.inner), dropped.inner))
    if weights.gate is None:
        return attended + _dropped(F.linear(inner, *weights.outer), dropped.outer)
    fed, opening = torch.split(inner, [weights.outer.weight.shape[1], weights.gate.weight.shape[1]], 1)
    fed = _dropped(F.linear(fed, *weights.outer), dropped.outer)
    opening = _dropped(F.linear(opening, *weights.gate), dropped.gate).sigmoid()
    return torch.addcmul(x, opening, attended + fed - x)


@region
def keys_values(
    x: Float[Tensor, "M D"],
    norm: Affine,
    weight: Tensor,
    rotation: Float[Tensor, "M half 2"] | None,
    *,
    heads: int,
) -> tuple[Float[Tensor, "M H E"], Float[Tensor, "M H E"]]:
    """Rotated keys, and values, of tokens with states `x`."""
    both = F.linear(_normed(x, norm), weight).view(x.shape[0], 2, heads, -1)
    keys, values = both.unbind(1)
    if rotation is not None:
        keys = _complex_product(keys, rotation[:, None]).to(values.dtype)
    # Where in memory a view begins is a size too, and one that would be compiled for.
    return (
        keys.clone(memory_format=torch.contiguous_format),
        values.clone(memory_format=torch.contiguous_format),
    )


class UpdatePlaces(NamedTuple):
    """Places of slots, and of what they take in."""

    slots: RowPlaces
    taken: RowPlaces


@region
def updated(
    slots: Float[Tensor, "M D"],
    states: Float[Tensor, "L D"],
    given: Joined,
    places: UpdatePlaces,
    dropped: Dropped,
    *,
    shapes: tuple[tuple[int, int], ...],
    heads: int,
    fused: bool,
) -> Float[Tensor, "M D"]:
    """Slots of memory after a layer by which they take in `states`.

    Joined are query, keys and values, output, inner and outer; the norms of slots, of states and of the
    feed-forward, and both biases.
    """
    parts = torch.split(given.matrices, [one * other for one, other in shapes])
    query, both, output, inner, outer = (part.view(shape) for part, shape in zip(parts, shapes, strict=True))
    width = slots.shape[1]
    vectors = torch.split(given.vectors, [width] * 6 + [shapes[3][0], width])
    kv = F.linear(_normed(states, Affine(*vectors[2:4])), both).view(states.shape[0], 2, heads, -1)
    k, v = spread(kv, places.taken).unbind(0)
    asked = F.linear(_normed(slots, Affine(*vectors[:2])), query).view(slots.shape[0], 1, heads, -1)
    q = spread(asked, places.slots)[0]
    found = _attended(q, k, v, places.taken.mask[:, None, None], dropped.weights, fused=fused)
    slots = slots + _dropped(F.linear(gather(found, heads, places.slots), output), dropped.attended)
    hidden = F.linear(_normed(slots, Affine(*vectors[4:6])), inner, vectors[6])
    hidden = F.gelu(_dropped(hidden, dropped.inner))
    return slots + _dropped(F.linear(hidden, outer, vectors[7]), dropped.outer)


def _parted(given: Joined, shapes: tuple[tuple[int, int], ...], *, gated: bool) -> Weights:
    parts = torch.split(given.matrices, [one * other for one, other in shapes])
    matrices = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
    width, recalls = shapes[1][0], len(shapes) > 4 + gated
    sizes = [width] * 4 + [shapes[2][0]] + [width] * (1 + gated + 2 * recalls)
    vectors = torch.split(given.vectors, sizes)
    return Weights(
        Affine(vectors[0], vectors[1]),
        matrices[0],
        matrices[1],
        Affine(vectors[2], vectors[3]),
        Affine(matrices[2], vectors[4]),
        Affine(matrices[3], vectors[5]),
        Affine(matrices[4], vectors[6]) if gated else None,
        Affine(vectors[-2], vectors[-1]) if recalls else None,
        matrices[-2] if recalls else None,
        matrices[-1] if recalls else None,
    )


def _recalled(
    x: Tensor, weights: Weights, recalling: Recalling, rows: RowPlaces, dropped: Dropped, *, fused: bool
) -> Tensor:
    assert weights.recall_norm is not None
    assert weights.recall_query is not None
    assert weights.recall_output is not None
    heads = recalling.keys.shape[1]
    asked = F.linear(_normed(x, weights.recall_norm), weights.recall_query).view(x.shape[0], 1, heads, -1)
    q = spread(asked, rows)[0]
    keys, values = recalling.keys, recalling.values
    found = _attended(q, keys, values, recalling.mask[:, None, None], dropped.recall_weights, fused=fused)
    return _dropped(F.linear(gather(found, heads, rows), weights.recall_output), dropped.recalled)


def _attended(
    q: Float[Tensor, "B H T E"],
    k: Float[Tensor, "B H K E"],
    v: Float[Tensor, "B H K E"],
    visible: Bool[Tensor, "B 1 #T K"],
    kept: WeightMask | None,
    *,
    fused: bool,
) -> Float[Tensor, "B_H T E"]:
    """softmax(q k^T / sqrt(E)) v over visible keys, some weights dropped."""
    (rows, heads, width, size), columns = q.shape, k.shape[2]
    require_alike((rows, columns), (visible.shape[0], visible.shape[3]))
    require_alike((rows, columns), (k.shape[0], v.shape[2]))
    barred = torch.where(visible, 0.0, -torch.inf).to(q.dtype)
    if fused:
        rate = 0.0 if kept is None else 1 - 1 / kept.scale
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=barred, dropout_p=rate)
        return out.reshape(rows * heads, width, size)
    flat_k, flat_v = (each.reshape(rows * heads, columns, size) for each in (k, v))
    scores = torch.bmm(q.reshape(rows * heads, width, size), flat_k.transpose(1, 2))
    scores = scores.view(rows, heads, width, columns)
    scores = scores * size**-0.5 + barred
    found = scores.softmax(-1, dtype=exact(scores.dtype))
    if kept is not None:
        require_alike(kept.keep.shape, found.shape)
        found = found * kept.keep.to(found.dtype) * kept.scale
    return torch.bmm(found.to(v.dtype).view(rows * heads, width, columns), flat_v)


def _visible(where: Where, keys: Bool[Tensor, "B K"]) -> Bool[Tensor, "B 1 #T K"]:
    if where.reach is None:
        return keys[:, None, None]
    # Padding reaches as far as the last token of its row, so that it reaches something.
    upto = where.reach.index_select(0, where.rows.token.flatten()).view(where.rows.token.shape)
    columns = torch.arange(keys.shape[1], device=keys.device)
    return (columns < upto[..., None])[:, None]


def _turned(
    x: Float[Tensor, "B H T E"], rotation: Float[Tensor, "M half 2"] | None, rows: RowPlaces
) -> Float[Tensor, "B H T E"]:
    if rotation is None:
        return x
    here = rotation.index_select(0, rows.token.flatten())
    return _complex_product(x, here.view(x.shape[0], 1, x.shape[2], -1, 2)).to(x.dtype)


def _complex_product(x: Float[Tensor, "*any E"], factor: Float[Tensor, "*any half 2"]) -> Tensor:
    """Pairs of numbers in `x`, read as complex ones, times factors, in the precision of these."""
    real, imaginary = x.to(factor.dtype).view(*x.shape[:-1], -1, 2).unbind(-1)
    cosine, sine = factor.unbind(-1)
    turned = torch.stack((real * cosine - imaginary * sine, real * sine + imaginary * cosine), -1)
    return turned.flatten(-2)


def _normed(x: Tensor, norm: Affine) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), norm.weight, norm.bias)


def _dropped(x: Tensor, kept: ElementMask | None) -> Tensor:
    if kept is None:
        return x
    require_alike(kept.keep.shape[:1], x.shape[:1])
    return kept.of(x)
