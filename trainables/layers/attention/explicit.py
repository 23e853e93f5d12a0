"""Explicit product of attention, with a backward pass that stores few intermediate tensors.

Computes softmax(scale * q k^T + bias + barred) v with dropout of weights. In addition to its inputs, only the
weights and one byte per mask element are stored; the weights after dropout are recomputed.

Legend: N = B H heads of width E of all rows, T queries, K keys.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import ref

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trainables.layers.constant_shapes import cached_constants
from trainables.layers.dropout import scaled
from trainables.layers.head_rows import (
    WHOLE,
    Factor,
    HeadRows,
    RowPart,
    can_leave_padding,
    gradient_to_padded,
    rotate_in_place,
    row_parts,
    to_padded,
)
from trainables.layers.host import Function
from trainables.layers.packing import Packing
from trainables.types import sum_dtype

Barred = Float[Tensor, "B #H #T K"]
"""Added to logits: minus infinity for keys that queries must not attend to, else zero."""


NARROW = 16
"""Number of columns of a result below which a CPU computes the transposed product in a third of the time."""
MAX_PAIRS = 1 << 17
"""Maximum number of pairs of query and key processed at once on a CPU: half a mebibyte in 32 bits."""
FEW_PAIRS, MAX_PAIRS_IF_FEW = 1 << 21, 1 << 19
"""For up to `FEW_PAIRS` pairs in total, `MAX_PAIRS_IF_FEW` are processed at once, because launching kernels
dominates."""


@dataclass(frozen=True)
class KeptWeights:
    """Mask of the weights that dropout keeps, and their scale."""

    keep: Bool[Tensor, "B H T K"]
    scale: float


class _Explicit(Function):
    @staticmethod
    def forward(  # noqa: PLR0917 autograd takes no keywords
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        attention_mask: Tensor | None,
        keep: Tensor | None,
        keep_scale: float,
    ) -> Tensor:
        scale = q.shape[-1] ** -0.5
        weights = _weights(q, k, scale, bias, attention_mask)
        ctx.save_for_backward(q, k, v, weights, keep)
        ctx.scale, ctx.keep_scale, ctx.biased = scale, keep_scale, bias is not None
        return product(drop_unscaled(weights, keep, v.dtype), v, keep_scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, keep = ctx.saved_tensors
        grad_v = _of_values(grads[0], v, weights, keep, ctx.keep_scale)
        scores = of_logits(grads[0], v, weights, keep, ctx.keep_scale).to(q.dtype)
        grad_q = product(scores, k, ctx.scale)
        grad_k = product(scores.transpose(1, 2), q, ctx.scale)
        return grad_q, grad_k, grad_v, scores if ctx.biased else None, None, None, None


def _weights(
    q: Tensor, k: Tensor, scale: float, bias: Tensor | None, attention_mask: Tensor | None
) -> Tensor:
    scores = _scores(q, k, scale, bias, attention_mask)
    return scores.softmax(-1, dtype=sum_dtype(scores.dtype))


def of_logits(grad: Tensor, v: Tensor, weights: Tensor, keep: Tensor | None, scale: float) -> Tensor:
    """Return the gradient of the logits, given the gradient of the output."""
    grad_weights = product(grad, v.transpose(1, 2), scale)
    if grad_weights.dtype != weights.dtype:
        grad_weights = grad_weights.to(weights.dtype)
    if keep is not None:
        grad_weights.mul_(keep.view(torch.uint8))
    return torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)


def _of_values(  # noqa: PLR0917 in the order of the pass
    grad: Tensor, v: Tensor, weights: Tensor, keep: Tensor | None, scale: float, result: Tensor | None = None
) -> Tensor:
    return product(drop_unscaled(weights, keep, v.dtype).transpose(1, 2), grad, scale, result)


class RowMasks(NamedTuple):
    """Masks of keys and of dropout for all rows."""

    barred: Barred | None
    keep_mask: Bool[Tensor, "B H T K"] | None
    scale: float
    """Factor of the kept weights."""

    @classmethod
    def of(cls, attention_mask: Barred | None, weight_dropout: KeptWeights | None) -> "RowMasks":
        """Build the masks of all rows."""
        return (
            cls(attention_mask, None, 1.0)
            if weight_dropout is None
            else cls(attention_mask, weight_dropout.keep, weight_dropout.scale)
        )

    def bar(self, part: RowPart) -> Tensor | None:
        """Return the mask of keys for the rows of `part`."""
        return None if self.barred is None else part.of_pairs(self.barred)

    def keep(self, part: RowPart) -> Bool[Tensor, "N Q S"] | None:
        """Return the dropout mask for the rows of `part`, with rows and heads in one axis."""
        return None if self.keep_mask is None else part.of_pairs(self.keep_mask).flatten(0, 1)

    def without(self) -> "RowMasks":
        """Return a copy without masks, for the backward pass.

        The backward pass reads the dropout mask from the saved tensors, so that a recomputed layer holds no
        reference to it.
        """
        return RowMasks(None, None, self.scale)


class _Moves(NamedTuple):
    """Arguments of attention on packed rows that have no gradient: indices, factors and masks."""

    places: tuple[HeadRows, HeadRows]
    """Indices of the inputs, and of the outputs."""
    factors: tuple[Factor, Factor] | None
    masks: RowMasks
    parts: tuple[RowPart, ...]
    """Groups of rows processed at once."""


class _Packed(Function):
    """Attention on packed rows of heads, including the conversion to the padded layout and back.

    `x` holds the queries only, if keys and values are given in the padded layout, or all three. Results and
    gradients at padding are undefined.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, keys_values: Tensor | None, moves: _Moves) -> Tensor:
        packed_x = to_padded(x, moves.places[0], None if moves.factors is None else moves.factors[0])
        q, k, v = _three(packed_x, keys_values)
        scale, masks, needs_gradient = q.shape[-1] ** -0.5, moves.masks, any(ctx.needs_input_grad)
        saved_weights: list[Tensor] = []
        attended = v.new_empty(q.shape) if len(moves.parts) > 1 else None
        for part in moves.parts:
            weights = _weights(part.of_queries(q), part.of_keys(k), scale, None, masks.bar(part))
            dropped_weights = drop_unscaled(weights, masks.keep(part), v.dtype)
            target = None if attended is None else part.of_queries(attended)
            attended_part = product(dropped_weights, part.of_keys(v), masks.scale, target)
            if needs_gradient:
                saved_weights.append(weights)
        attended = attended_part if attended is None else attended
        ctx.save_for_backward(packed_x, keys_values, masks.keep_mask, *saved_weights)
        ctx.moves, ctx.shape = moves._replace(masks=masks.without()), x.shape
        rows = attended.reshape(-1, attended.shape[-1]).index_select(0, moves.places[1].back)
        return rows.view(x.shape[0], *x.shape[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        packed_x, keys_values, keep, *saved_weights = ctx.saved_tensors
        moves: _Moves = ctx.moves
        moves = moves._replace(masks=RowMasks(None, keep, moves.masks.scale))
        three = _three(packed_x, keys_values)
        wide = gradient_to_padded(grads[0], moves.places[1]).view(three[0].shape)
        if len(saved_weights) == 1 and not wide.is_cuda and wide.shape[-1] < NARROW:
            grad_q, *grads_kv = _of_part(WHOLE, three, wide, saved_weights[0], moves)
            if keys_values is None:
                grad_x, grad_kv = torch.stack((grad_q, *grads_kv)).view(packed_x.shape), None
            else:
                grad_x, grad_kv = (
                    torch.stack((grad_q,)).view(packed_x.shape),
                    torch.stack(grads_kv).view(keys_values.shape),
                )
        else:
            grad_x = torch.empty_like(packed_x)
            grad_kv = None if keys_values is None else torch.empty_like(keys_values)
            grad_parts = _three(grad_x, grad_kv)
            for part, weights in zip(moves.parts, saved_weights, strict=True):
                _of_part(part, three, wide, weights, moves, grad_parts)
        if moves.factors is not None:
            rotate_in_place(grad_x, moves.factors[1])
        packed = grad_x.view(-1, grad_x.shape[-1]).index_select(0, moves.places[0].back).view(ctx.shape)
        return packed, grad_kv, None


_Three = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values of all rows and heads, or their gradients."""


def _of_part(  # noqa: PLR0917 in the order of the pass
    part: RowPart, three: _Three, grad: Tensor, weights: Tensor, moves: _Moves, targets: _Three | None = None
) -> _Three:
    """Return gradients of queries, keys and values of `part`, written into slices of `targets` if given."""
    q, k, v = part.of_queries(three[0]), part.of_keys(three[1]), part.of_keys(three[2])
    of_q = of_k = of_v = None
    if targets is not None:
        of_q, of_k, of_v = part.of_queries(targets[0]), part.of_keys(targets[1]), part.of_keys(targets[2])
    grad, keep, scale = part.of_queries(grad), moves.masks.keep(part), q.shape[-1] ** -0.5
    # The largest tensor is computed first and freed before the next one of its size is allocated.
    scores = of_logits(grad, v, weights, keep, moves.masks.scale)
    if scores.dtype != q.dtype:
        scores = scores.to(q.dtype)
    grad_q = product(scores, k, scale, of_q)
    grad_k = product(scores.transpose(1, 2), q, scale, of_k)
    del scores
    return grad_q, grad_k, _of_values(grad, v, weights, keep, moves.masks.scale, of_v)


def _three(parts: Tensor, keys_values: Tensor | None) -> _Three:
    if keys_values is None:
        q, k, v = parts.flatten(1, 2).unbind(0)
    else:
        q, (k, v) = parts.view(-1, *parts.shape[3:]), keys_values.flatten(1, 2).unbind(0)
    return q, k, v


def _scores(q: Tensor, k: Tensor, scale: float, bias: Tensor | None, attention_mask: Tensor | None) -> Tensor:
    """Return the logits, by one fused product and sum if the shapes permit it."""
    keys = k.transpose(1, 2)
    if (
        bias is None
        and attention_mask is not None
        and attention_mask.shape[0] * attention_mask.shape[1] == q.shape[0]
    ):
        mask = attention_mask.flatten(0, 1).expand(-1, q.shape[1], -1)
        return torch.baddbmm(mask, q, keys, alpha=scale)
    scores = product(q, keys, scale) if bias is None else torch.baddbmm(bias, q, keys, alpha=scale)
    if attention_mask is not None:
        rows = attention_mask.shape[0]
        scores.view(rows, scores.shape[0] // rows, *scores.shape[1:]).add_(attention_mask)
    return scores


def product(
    first: Float[Tensor, "N T K"],
    second: Float[Tensor, "N K E"],
    scale: float = 1.0,
    out: Float[Tensor, "N T E"] | None = None,
) -> Float[Tensor, "N T E"]:
    """Return `scale * first @ second`, written into `out` if given."""
    if out is not None and not out.is_cuda and not out.is_contiguous():
        # On a CPU, PyTorch writes into a part of a tensor one matrix at a time.
        return out.copy_(product(first, second, scale))
    if not first.is_cuda and second.shape[2] < NARROW < first.shape[1]:
        transposed = product(second.transpose(1, 2), first.transpose(1, 2), scale).transpose(1, 2)
        return transposed if out is None else out.copy_(transposed)
    if scale == 1:
        return torch.bmm(first, second, out=out)
    return torch.baddbmm(_nothing(first.dtype, first.device), first, second, beta=0, alpha=scale, out=out)


@cached_constants(maxsize=16)
def _nothing(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a placeholder for the first argument of `baddbmm`, which beta=0 ignores."""
    return torch.zeros((1, 1, 1), dtype=dtype, device=device)


def drop_unscaled(weights: Tensor, keep: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return `weights` after dropout in `dtype`, not rescaled, because the next product does that."""
    dropped_weights = weights if keep is None else scaled(weights, keep, 1.0)
    return dropped_weights if dropped_weights.dtype == dtype else dropped_weights.to(dtype)


def explicit(
    q: Float[Tensor, "B H T E"],
    k: Float[Tensor, "B H K E"],
    v: Float[Tensor, "B H K E"],
    *,
    attention_mask: Barred | None = None,
    bias: Float[Tensor, "B H T K"] | None = None,
    weight_dropout: KeptWeights | None = None,
) -> Float[Tensor, "B H T E"]:
    """Return attention of every query to the keys of its row, in the padded layout.

    Args:
        q: Queries, (rows, heads, queries, head width).
        k: Keys, (rows, heads, keys, head width).
        v: Values, (rows, heads, keys, head width).
        attention_mask: Added to logits: minus infinity for keys that are masked, else zero.
        bias: Added to logits, with a gradient.
        weight_dropout: Dropout mask and scale.
    """
    flat = [x.flatten(0, 1) for x in (q, k, v)]
    bias = None if bias is None else bias.flatten(0, 1)
    keep = None if weight_dropout is None else weight_dropout.keep.flatten(0, 1)
    scale = 1.0 if weight_dropout is None else weight_dropout.scale
    attended: Tensor = _Explicit.run(*flat, bias, attention_mask, keep, scale)
    return attended.view(q.shape)


def explicit_packed(
    x: Float[Tensor, "M P H E"],
    packing: Packing,
    keys_values: Float[Tensor, "2 B H K E"] | None = None,
    keys: Packing | None = None,
    *,
    factors: tuple[Factor, Factor] | None = None,
    attention_mask: Barred | None = None,
    weight_dropout: KeptWeights | None = None,
) -> Float[Tensor, "M H E"]:
    """Return attention of packed tokens.

    Args:
        x: Packed queries only, or queries, keys and values, (tokens, parts, heads, head width).
        packing: Packing of `x`.
        keys_values: Padded keys and values, (2, rows, heads, keys, head width), if `x` holds only queries.
        keys: Packing of `keys_values`, if known.
        factors: Complex factors of parts of `x`, and their conjugates (`layers.head_rows`).
        attention_mask: Added to logits.
        weight_dropout: Dropout mask and scale.
    """
    places, at_once = _arranged(packing, packing if keys_values is None else keys, x.shape[2], x.shape[1])
    moves = _Moves(places, factors, RowMasks.of(attention_mask, weight_dropout), at_once)
    attended: Tensor = _Packed.run(x, keys_values, moves)
    return attended


_Arranged = tuple[tuple[HeadRows, HeadRows], tuple[RowPart, ...]]


def _arranged(queries: Packing, keys: Packing | None, heads: int, parts: int) -> _Arranged:
    """Return the indices that convert between both layouts, and the groups of rows processed at once.

    They are built once for all layers that run on these queries and keys.
    """
    name = ("arranged", heads, parts, keys is None)
    cached = queries.cache.get(name)
    # A weak reference, because keys may hold a reference to these queries.
    if cached is None or (keys is not None and cached[0]() is not keys):
        places = HeadRows.of(queries, heads, parts), HeadRows.of(queries, heads)
        keys_ref = None if keys is None else ref(keys)
        cached = queries.cache[name] = keys_ref, (places, _parts(queries, keys, heads))
    arranged: _Arranged = cached[1]
    return arranged


def _parts(queries: Packing, keys: Packing | None, heads: int) -> tuple[RowPart, ...]:
    if keys is None or not can_leave_padding(queries, keys):
        return (WHOLE,)
    pairs = queries.num_rows * heads * queries.width * keys.width
    max_pairs = MAX_PAIRS_IF_FEW if pairs <= FEW_PAIRS else MAX_PAIRS
    if pairs <= max_pairs:
        return (WHOLE,)
    if keys is not queries:
        return tuple(row_parts(queries, keys, heads, max_pairs))
    # Built once for all layers that run on these tokens.
    parts: tuple[RowPart, ...] = queries.once(
        ("row parts", heads, max_pairs), lambda: tuple(row_parts(queries, keys, heads, max_pairs))
    )
    return parts
