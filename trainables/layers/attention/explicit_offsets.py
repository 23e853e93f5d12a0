"""Explicit product of attention with a bias per offset, in parts of a batch and without padding.

Computes softmax(scale * q k^T + bias + barred) v with dropout of weights. The bias of a pair is one of the
few numbers of its query. As many rows are processed at once as fit the cache with their pairs, in a width
close to that of the longest row. For uniformly distributed lengths, two thirds of the pairs of the padded
form are padding.

Legend: N = B H heads of width E of all rows, T queries, K keys, O offsets.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainables.layers.attention.explicit import (
    Barred,
    KeptWeights,
    RowMasks,
    drop_unscaled,
    of_logits,
    product,
)
from trainables.layers.head_rows import RowPart, row_parts
from trainables.layers.host import Function
from trainables.layers.packing import Packing
from trainables.types import sum_dtype

MAX_PAIRS = 1 << 15
"""Maximum number of pairs processed at once: an eighth of a mebibyte in 32 bits."""


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
    offset: Int[Tensor, "B T K"]
    masks: RowMasks

    def offsets(self, part: RowPart, heads: int) -> Int[Tensor, "R H T K"]:
        """Return the offset indices of the pairs of one part."""
        offsets = self.offset[part.rows, None, : part.queries, : part.keys]
        return offsets.expand(-1, heads, -1, -1)

    def bar(self, scores: Float[Tensor, "R H T K"], part: RowPart) -> None:
        """Add the mask of keys to `scores` in place."""
        barred = self.masks.bar(part)
        if barred is not None:
            # The mask has one query if all queries of a row attend to the same keys.
            scores.add_(barred)


class _ByOffset(Function):
    @staticmethod
    def forward(  # noqa: PLR0917 autograd takes no keywords
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, logits: Tensor, arguments: _PairArguments
    ) -> Tensor:
        attended, saved_weights, scale = torch.empty_like(q), [], q.shape[-1] ** -0.5
        for part in arguments.parts:
            asking, keys = part.of_queries(q), part.of_keys(k)
            part_logits = logits[part.rows, :, : part.queries]
            scores = part_logits.gather(-1, arguments.offsets(part, logits.shape[1]))
            flat = scores.flatten(0, 1)
            torch.baddbmm(flat, asking, keys.transpose(1, 2), alpha=scale, out=flat)
            arguments.bar(scores, part)
            weights = scores.softmax(-1, dtype=sum_dtype(scores.dtype)).flatten(0, 1)
            dropped_weights = drop_unscaled(weights, arguments.masks.keep(part), v.dtype)
            product(dropped_weights, part.of_keys(v), arguments.masks.scale, part.of_queries(attended))
            saved_weights += [weights] if any(ctx.needs_input_grad) else []
        ctx.save_for_backward(q, k, v, arguments.masks.keep_mask, *saved_weights)
        ctx.arguments, ctx.scale, ctx.logits_shape = (
            replace(arguments, masks=arguments.masks.without()),
            scale,
            logits.shape,
        )
        return attended

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, keep, *saved_weights = ctx.saved_tensors
        masks, scale = ctx.arguments.masks._replace(keep_mask=keep), ctx.scale
        arguments = replace(ctx.arguments, masks=masks)
        grad_q, grad_k, grad_v = (torch.empty_like(tensor) for tensor in (q, k, v))
        grad_bias = q.new_zeros(ctx.logits_shape)
        for part, weights in zip(arguments.parts, saved_weights, strict=True):
            wide, keep = part.of_queries(grads[0]), arguments.masks.keep(part)
            keys, values = part.of_keys(k), part.of_keys(v)
            dropped_weights = drop_unscaled(weights, keep, v.dtype)
            product(dropped_weights.transpose(1, 2), wide, arguments.masks.scale, part.of_keys(grad_v))
            scores = of_logits(wide, values, weights, keep, arguments.masks.scale).to(q.dtype)
            pairs = scores.view(-1, ctx.logits_shape[1], part.queries, part.keys)
            grad_part = grad_bias[part.rows, :, : part.queries]
            grad_part.scatter_add_(-1, arguments.offsets(part, ctx.logits_shape[1]), pairs)
            product(scores, keys, scale, part.of_queries(grad_q))
            asking = part.of_queries(q)
            product(scores.transpose(1, 2), asking, scale, part.of_keys(grad_k))
        return grad_q, grad_k, grad_v, grad_bias, None


def explicit_by_offset(
    q: Float[Tensor, "B H T E"],
    k: Float[Tensor, "B H K E"],
    v: Float[Tensor, "B H K E"],
    bias: OffsetBias,
    packings: tuple[Packing, Packing],
    *,
    attention_mask: Barred | None = None,
    weight_dropout: KeptWeights | None = None,
) -> Float[Tensor, "B H T E"]:
    """Return the attention output of the queries of the first packing over the keys of the second one.

    Results and gradients at padding are undefined, except that gradients of `bias` are zero there.
    """
    parts = tuple(row_parts(*packings, q.shape[1], MAX_PAIRS))
    arguments = _PairArguments(parts, bias.offset, RowMasks.of(attention_mask, weight_dropout))
    flat = (x.flatten(0, 1) for x in (q, k, v))
    attended: Tensor = _ByOffset.run(*flat, bias.bias, arguments)
    return attended.view(q.shape)
