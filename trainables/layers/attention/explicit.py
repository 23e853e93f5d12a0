"""Explicit product of attention, in parts of a batch and without padding.

Computes softmax(scale * q k^T + bias + barred) v with dropout of weights. The bias of a pair, if any, is one
of the few numbers of its query. On a CPU, as many rows are processed at once as fit the cache with their
pairs, in a width close to that of the longest row. In addition to its inputs, the backward pass needs only
the weights and one byte per mask element; the weights after dropout are recomputed.

Legend: N = B H heads of width E of all rows, T queries, K keys, O offsets.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trainables.layers.constant_shapes import cached_constants
from trainables.layers.dropout import scaled
from trainables.layers.head_rows import ALL_ROWS, RowPart, can_skip_padding, row_parts
from trainables.layers.host import Function
from trainables.layers.packing import Packing
from trainables.types import sum_dtype

LogitMask = Float[Tensor, "B #H #T K"]
"""Added to logits: minus infinity for keys that queries must not attend to, else zero."""


NARROW_COLUMNS = 16
"""Number of columns of a result below which a CPU computes the transposed product in a third of the time."""
MAX_PAIRS, MAX_BIASED_PAIRS = 1 << 17, 1 << 15
"""Maximum number of pairs of query and key processed at once on a CPU, without and with a bias."""
FEW_PAIRS, MAX_PAIRS_IF_FEW = 1 << 21, 1 << 19
"""For up to `FEW_PAIRS` pairs in total, `MAX_PAIRS_IF_FEW` are processed at once, because launching kernels
dominates."""


@dataclass(frozen=True)
class KeptWeights:
    """Mask of the weights that dropout keeps, and their scale."""

    keep: Bool[Tensor, "B H T K"]
    scale: float


@dataclass(frozen=True)
class OffsetBias:
    """Bias added to the logits of pairs, by offset."""

    bias: Float[Tensor, "B H T O"]
    """Bias of each offset for each query, in the padded form."""
    offset: Int[Tensor, "B T K"]
    """Index of the offset of each pair."""

    def table(self) -> Float[Tensor, "B H T K"]:
        """Return the bias added to the logit of each pair of query and key."""
        return self.bias.gather(-1, self.offset[:, None].expand(-1, self.bias.shape[1], -1, -1))


@dataclass(frozen=True)
class _PairArguments:
    """Arguments of the product that have no gradient."""

    parts: tuple[RowPart, ...]
    """Groups of rows processed at once."""
    offset: Int[Tensor, "B T K"] | None
    logit_mask: LogitMask | None
    keep_mask: Bool[Tensor, "B H T K"] | None
    keep_scale: float

    def offsets(self, part: RowPart, heads: int) -> Int[Tensor, "R H T K"]:
        """Return the offset indices of the pairs of one part."""
        assert self.offset is not None
        offsets = self.offset[part.rows, None, : part.queries, : part.keys]
        return offsets.expand(-1, heads, -1, -1)

    def keep(self, part: RowPart) -> Bool[Tensor, "P Q S"] | None:
        """Return the dropout mask of one part, with rows and heads in one axis."""
        return None if self.keep_mask is None else part.slice_pairs(self.keep_mask).flatten(0, 1)

    def weights(
        self, part: RowPart, q: Tensor, k: Tensor, bias: Float[Tensor, "B H T O"] | None
    ) -> Float[Tensor, "P Q S"]:
        """Return the weights of one part before dropout."""
        part_queries, keys = part.slice_queries(q), part.slice_keys(k).transpose(1, 2)
        logit_mask, scale = (
            None if self.logit_mask is None else part.slice_pairs(self.logit_mask),
            q.shape[-1] ** -0.5,
        )
        if bias is not None:
            logits = bias[part.rows, :, : part.queries].gather(-1, self.offsets(part, bias.shape[1]))
            scores = logits.flatten(0, 1)
            torch.baddbmm(scores, part_queries, keys, alpha=scale, out=scores)
        elif logit_mask is not None and logit_mask.shape[0] * logit_mask.shape[1] == part_queries.shape[0]:
            mask, logit_mask = logit_mask.flatten(0, 1).expand(-1, part_queries.shape[1], -1), None
            scores = torch.baddbmm(mask, part_queries, keys, alpha=scale)
        else:
            scores = product(part_queries, keys, scale)
        if logit_mask is not None:
            # The mask has one query if all queries of a row attend to the same keys.
            rows = logit_mask.shape[0]
            scores.view(rows, scores.shape[0] // rows, *scores.shape[1:]).add_(logit_mask)
        return scores.softmax(-1, dtype=sum_dtype(scores.dtype))


class _ExplicitAttention(Function):
    """Attention in the padded layout. Results and gradients at padding are undefined, except of the bias."""

    @staticmethod
    def forward(  # noqa: PLR0917 autograd takes no keywords
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, arguments: _PairArguments
    ) -> Tensor:
        attended, saved_weights = torch.empty_like(q), []
        for part in arguments.parts:
            weights = arguments.weights(part, q, k, bias)
            dropped_weights = _drop_unscaled(weights, arguments.keep(part), v.dtype)
            product(dropped_weights, part.slice_keys(v), arguments.keep_scale, part.slice_queries(attended))
            saved_weights += [weights] if any(ctx.needs_input_grad) else []
        ctx.save_for_backward(q, k, v, arguments.keep_mask, *saved_weights)
        # A recomputed layer must hold no reference to its masks.
        ctx.arguments = replace(arguments, logit_mask=None, keep_mask=None)
        ctx.bias_shape = None if bias is None else bias.shape
        return attended

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, keep_mask, *saved_weights = ctx.saved_tensors
        arguments: _PairArguments = replace(ctx.arguments, keep_mask=keep_mask)
        scale, keep_scale = q.shape[-1] ** -0.5, arguments.keep_scale
        grad_q, grad_k, grad_v = (torch.empty_like(tensor) for tensor in (q, k, v))
        grad_bias = None if ctx.bias_shape is None else q.new_zeros(ctx.bias_shape)
        for part, weights in zip(arguments.parts, saved_weights, strict=True):
            part_grad, keep = part.slice_queries(grads[0]), arguments.keep(part)
            scores = _logits_gradient(part_grad, part.slice_keys(v), weights, keep, keep_scale).to(q.dtype)
            if grad_bias is not None:
                heads = grad_bias.shape[1]
                pairs = scores.view(-1, heads, *scores.shape[1:])
                grad_part = grad_bias[part.rows, :, : part.queries]
                grad_part.scatter_add_(-1, arguments.offsets(part, heads), pairs)
            product(scores, part.slice_keys(k), scale, part.slice_queries(grad_q))
            product(scores.transpose(1, 2), part.slice_queries(q), scale, part.slice_keys(grad_k))
            del scores
            dropped_weights = _drop_unscaled(weights, keep, v.dtype)
            product(dropped_weights.transpose(1, 2), part_grad, keep_scale, part.slice_keys(grad_v))
        return grad_q, grad_k, grad_v, grad_bias, None


def _logits_gradient(grad: Tensor, v: Tensor, weights: Tensor, keep: Tensor | None, scale: float) -> Tensor:
    """Return the gradient of the logits, given the gradient of the output."""
    grad_weights = product(grad, v.transpose(1, 2), scale).to(weights.dtype)
    if keep is not None:
        grad_weights.mul_(keep.view(torch.uint8))
    return torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)


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
    if not first.is_cuda and second.shape[2] < NARROW_COLUMNS < first.shape[1]:
        transposed = product(second.transpose(1, 2), first.transpose(1, 2), scale).transpose(1, 2)
        return transposed if out is None else out.copy_(transposed)
    if scale == 1:
        return torch.bmm(first, second, out=out)
    return torch.baddbmm(_placeholder(first.dtype, first.device), first, second, beta=0, alpha=scale, out=out)


@cached_constants(maxsize=16)
def _placeholder(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a placeholder for the first argument of `baddbmm`, which beta=0 ignores."""
    return torch.zeros((1, 1, 1), dtype=dtype, device=device)


def _drop_unscaled(weights: Tensor, keep: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return `weights` after dropout in `dtype`, not rescaled, because the next product does that."""
    dropped_weights = weights if keep is None else scaled(weights, keep, 1.0)
    return dropped_weights if dropped_weights.dtype == dtype else dropped_weights.to(dtype)


def explicit(  # noqa: PLR0917 in the order of the tensors
    q: Float[Tensor, "B H T E"],
    k: Float[Tensor, "B H K E"],
    v: Float[Tensor, "B H K E"],
    packings: tuple[Packing, Packing],
    bias: OffsetBias | None = None,
    attention_mask: LogitMask | None = None,
    weight_dropout: KeptWeights | None = None,
) -> Float[Tensor, "B H T E"]:
    """Return the attention output of every query over the keys of its row, in the padded layout.

    Results and gradients at padding are undefined, except that gradients of `bias` are zero there.

    Args:
        q: Queries, (rows, heads, queries, head width).
        k: Keys, (rows, heads, keys, head width).
        v: Values, (rows, heads, keys, head width).
        packings: Packings of the queries and of the keys.
        bias: Added to logits, with a gradient.
        attention_mask: Added to logits.
        weight_dropout: Dropout mask and scale.
    """
    keep, scale = (None, 1.0) if weight_dropout is None else (weight_dropout.keep, weight_dropout.scale)
    parts = _parts(*packings, q.shape[1], is_biased=bias is not None)
    offset_bias, offset = (None, None) if bias is None else (bias.bias, bias.offset)
    arguments = _PairArguments(parts, offset, attention_mask, keep, scale)
    attended: Tensor = _ExplicitAttention.run(*(x.flatten(0, 1) for x in (q, k, v)), offset_bias, arguments)
    return attended.view(q.shape)


def _parts(queries: Packing, keys: Packing, heads: int, *, is_biased: bool) -> tuple[RowPart, ...]:
    if not can_skip_padding(queries, keys):
        return (ALL_ROWS,)
    pairs = queries.num_rows * heads * queries.width * keys.width
    max_pairs = MAX_PAIRS_IF_FEW if pairs <= FEW_PAIRS else MAX_PAIRS
    if is_biased:
        max_pairs = MAX_BIASED_PAIRS
    if pairs <= max_pairs:
        return (ALL_ROWS,)
    return tuple(row_parts(queries, keys, heads, max_pairs))
