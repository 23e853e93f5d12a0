"""Attention of the Neural Data Router: each query attends to the nearest matching position.

Source: Csordas, Irie and Schmidhuber, The Neural Data Router, with their released code; restated in Ray
Chowdhury and Caragea, On the Design Space Between Transformers and Recursive Neural Nets, Eq. 4-7. With a
match probability C_ij = sigmoid(logit_ij), which is zero for i = j and for padding,

    A_ij = C_ij * prod_{k in S_ij} (1 - C_ik),

where S_ij holds all k other than i and j that are nearer to i than j is. For j < i it also holds the position
at the same distance to the right: of two equally distant positions the right one is tried first. In log space
every product is a running sum over the keys in the order in which a query tries them.

The logit is scale * (q_i + u) . k_j + bias, plus one of two numbers of query i: one for all later positions,
one for all earlier positions (direction sensitivity). The second source omits these from Eq. 5 as a detail.
Row normalisation is a softmax over log A; the released code divides by a sum clamped to at least 1e-12.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.layers.attention.attend import additive_mask
from trainables.layers.attention.explicit import product
from trainables.layers.attention.subnormal import flush_subnormals
from trainables.layers.constant_shapes import cached_constants
from trainables.layers.dropout import KeyedDropout
from trainables.layers.head_rows import length_order, pad_heads, round_up_width, sorts_rows, unpad_heads
from trainables.layers.host import Function
from trainables.layers.linear import Constant, Linear, XavierLinear
from trainables.layers.packing import Packing, take
from trainables.types import sum_dtype

SINUSOID_BASE = 10_000.0
WIDTHS = 128
"""Maximum number of widths for which tables are cached."""
MAX_PAIRS = 1 << 17
"""Maximum number of pairs processed at once on a CPU: half a mebibyte in 32 bits."""
_Rows = tuple[Float[Tensor, "B H T E"], Float[Tensor, "B H T E"], Float[Tensor, "B H T E"]]
"""Queries with their bias, scaled; keys; values."""


@dataclass(frozen=True)
class Portion:
    """Rows that are processed at once, padded to about the length of the longest row among them."""

    rows: slice
    """The slice of these rows among the sorted rows."""
    heads: slice
    """The corresponding slice of the rows times heads axis."""
    logit_mask: Float[Tensor, "R 1 W W"]
    """Minus infinity for keys that queries must not attend to, else zero."""
    order: Int[Tensor, " W_W"]
    """Order in which queries try keys, as indices of the flattened last two axes."""
    inverse_order: Int[Tensor, " W_W"]
    """Inverse of `order`."""
    is_later: Float[Tensor, "W W"]
    """One where a key comes after its query, else zero."""

    @classmethod
    def of(
        cls, attention_mask: Float[Tensor, "R 1 W W"], rows: slice = slice(None), heads: slice = slice(None)
    ) -> "Portion":
        """Build a portion from its mask; by default it holds all rows."""
        width, device = attention_mask.shape[-1], attention_mask.device
        return cls(
            rows,
            heads,
            attention_mask,
            *_key_order(width, device),
            _is_later(width, attention_mask.dtype, device),
        )

    def slice_heads(self, x: Float[Tensor, "N T E"]) -> Float[Tensor, "K W E"]:
        """Return the part of `x` for these rows; rows and heads are one axis of `x`."""
        return x[self.heads, : self.logit_mask.shape[-1]]

    def slice_rows(self, x: Float[Tensor, "B H T 1"]) -> Float[Tensor, "R H W 1"]:
        """Return the part of `x` for these rows; heads have a separate axis in `x`."""
        return x[self.rows, :, : self.logit_mask.shape[-1]]


class _NearestMatch(Function):
    """Sum of the values, weighted by the probability that their key is the nearest match.

    Logits are products of `q` and `k` plus `bias_near`, and plus `bias_later` where a key comes later.
    Results at padding are undefined. With l the logits in the order in which keys are tried, the logarithm of
    A is l_j - sum_{k<=j} log(1 + exp(l_k)), because log C = l + log (1 - C). The logit and the weight of each
    pair are stored for the backward pass.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 autograd takes no keywords
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias_near: Tensor,
        bias_later: Tensor | None,
        portions: tuple[Portion, ...],
        normalise: bool,
    ) -> Tensor:
        attended, saved_weights = torch.empty_like(v), []
        with flush_subnormals():
            for part in portions:
                part_later = None if bias_later is None else part.slice_rows(bias_later)
                logits = _logits(
                    part.slice_heads(q), part.slice_heads(k), part.slice_rows(bias_near), part_later, part
                )
                ordered_logits, weights = _weights(logits, part, normalise=normalise)
                product(
                    weights.to(v.dtype).flatten(0, 1), part.slice_heads(v), out=part.slice_heads(attended)
                )
                saved_weights += [ordered_logits, weights] if any(ctx.needs_input_grad) else []
        ctx.save_for_backward(q, k, v, *saved_weights)
        ctx.portions, ctx.normalise = portions, normalise
        ctx.bias_shapes = bias_near.shape, None if bias_later is None else bias_later.shape
        return attended

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *saved_weights = ctx.saved_tensors
        grad_q, grad_k, grad_v = (torch.empty_like(tensor) for tensor in (q, k, v))
        grad_near, grad_later = (
            None if shape is None else saved_weights[0].new_zeros(shape) for shape in ctx.bias_shapes
        )
        with flush_subnormals():
            for part, ordered_logits, weights in zip(
                ctx.portions, saved_weights[::2], saved_weights[1::2], strict=True
            ):
                part_grad, flat_weights = part.slice_heads(grads[0]), weights.to(v.dtype).flatten(0, 1)
                product(flat_weights.transpose(1, 2), part_grad, out=part.slice_heads(grad_v))
                grad = (
                    product(part_grad, part.slice_heads(v).transpose(1, 2))
                    .to(weights.dtype)
                    .view(weights.shape)
                )
                grad, buffer = _logits_gradient(grad, ordered_logits, weights, part, normalise=ctx.normalise)
                part.slice_rows(grad_near).copy_(grad.sum(-1, keepdim=True))
                if grad_later is not None:
                    part.slice_rows(grad_later).copy_(
                        torch.mul(grad, part.is_later, out=buffer).sum(-1, keepdim=True)
                    )
                scores = grad.to(q.dtype).flatten(0, 1)
                product(scores, part.slice_heads(k), out=part.slice_heads(grad_q))
                product(scores.transpose(1, 2), part.slice_heads(q), out=part.slice_heads(grad_k))
        return grad_q, grad_k, grad_v, grad_near, grad_later, None, None


def _logits(
    q: Tensor, k: Tensor, bias_near: Tensor, bias_later: Tensor | None, part: Portion
) -> Float[Tensor, "R H W W"]:
    content = product(q, k.transpose(1, 2))
    content = content.to(sum_dtype(content.dtype)).view(*bias_near.shape[:-1], -1).add_(bias_near)
    if bias_later is not None:
        # Sums and products, because selection by a mask expanded over heads is ten times as slow on a CPU.
        content.addcmul_(bias_later, part.is_later)
    return content.add_(part.logit_mask)


def _weights(logits: Tensor, part: Portion, *, normalise: bool) -> tuple[Tensor, Tensor]:
    """Return `logits` in the order in which keys are tried, and the weights; overwrites `logits`."""
    ordered_logits = _permuted(logits, part.order)
    # The default threshold of softplus would change results in 64 bits.
    sums = F.softplus(ordered_logits, threshold=40).cumsum_(-1)
    logs = _permuted(torch.sub(ordered_logits, sums, out=sums), part.inverse_order, logits)
    return ordered_logits, torch.softmax(logs, -1, out=sums) if normalise else torch.exp(logs, out=sums)


def _logits_gradient(
    grad: Tensor, values_to_try: Tensor, weights: Tensor, part: Portion, *, normalise: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradient of the logits, and an unused tensor of the same size; overwrites `grad`.

    `grad` is the gradient of the weights.
    """
    dtype = weights.dtype
    logs = torch._softmax_backward_data(grad, weights, -1, dtype) if normalise else grad * weights
    grad = _permuted(logs, part.order, grad)
    later_sums = torch.cumsum(grad, -1, out=logs)
    total = later_sums[..., -1:].clone()
    later_sums = torch.sub(total, later_sums, out=later_sums).add_(grad).mul_(values_to_try.sigmoid())
    return _permuted(grad.sub_(later_sums), part.inverse_order, later_sums), grad


def _permuted(
    x: Float[Tensor, "B H T T"], order: Int[Tensor, " T_T"], result: Float[Tensor, "B H T T"] | None = None
) -> Float[Tensor, "B H T T"]:
    """Permute the flattened last two axes by `order`; write into `result` if given."""
    target = None if result is None else result.flatten(0, 1).flatten(1)
    return torch.index_select(x.flatten(0, 1).flatten(1), 1, order, out=target).view(x.shape)


@cached_constants(maxsize=WIDTHS)
def _key_order(width: int, device: torch.device) -> tuple[Int[Tensor, " T_T"], Int[Tensor, " T_T"]]:
    """Return the order in which each of `width` queries tries its keys (itself last), and its inverse.

    The tables are built once for all layers, outside of inference mode, because tensors built in inference
    mode cannot be used in training.
    """
    positions = torch.arange(width, device=device)
    query, key = positions[:, None], positions
    rank = (2 * (key - query).abs() - (key > query).long()).fill_diagonal_(2 * width)
    order = rank.argsort(-1)
    begin = query * width
    return (order + begin).flatten(), (order.argsort(-1) + begin).flatten()


@cached_constants(maxsize=WIDTHS)
def _is_later(width: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "T T"]:
    return torch.ones((width, width), dtype=dtype, device=device).triu(1)


def mask_keys(keys: Bool[Tensor, "B T"], dtype: torch.dtype) -> Float[Tensor, "B 1 T T"]:
    """Return minus infinity for each query's own key and for keys outside of `keys`, else zero."""
    own_keys = torch.eye(keys.shape[-1], dtype=torch.bool, device=keys.device)
    return additive_mask((~own_keys & keys[:, None])[:, None], dtype)


def split_portions(packing: Packing, heads: int, dtype: torch.dtype) -> tuple[Portion, ...]:
    """Return portions of rows, longest first, or all rows in one portion in their order.

    On a CPU, a portion is so small that its rows and their pairs fit in the cache, and portions reuse one
    buffer. Otherwise allocating memory would take most of the time of a pass over all pairs.
    """
    if not sorts_rows(packing):
        return (Portion.of(mask_keys(packing.mask, dtype)),)
    lengths, portions, begin = np.sort(packing.host_counts)[::-1], [], 0
    while begin < lengths.shape[0]:
        width = round_up_width(int(lengths[begin]), packing.width)
        end = min(begin + max(1, MAX_PAIRS // max(1, heads * width * width)), lengths.shape[0])
        keys = torch.from_numpy(np.arange(width) < lengths[begin:end, None])
        rows, head_rows = slice(begin, end), slice(begin * heads, end * heads)
        portions.append(Portion.of(mask_keys(keys, dtype), rows, head_rows))
        begin = end
    return tuple(portions)


def attend_nearest(  # noqa: PLR0917 in the order of the tensors
    q: Float[Tensor, "B H T E"],
    k: Float[Tensor, "B H T E"],
    v: Float[Tensor, "B H T E"],
    bias_near: Float[Tensor, "B H T 1"],
    bias_later: Float[Tensor, "B H T 1"] | None,
    portions: tuple[Portion, ...],
    *,
    normalise: bool,
) -> Float[Tensor, "B H T E"]:
    """Return the values weighted by A, with rows of A summing to one if `normalise`.

    Args:
        q: Scaled queries, (rows, heads, length, head width).
        k: Keys, (rows, heads, length, head width).
        v: Values, (rows, heads, length, head width).
        bias_near: Number of each query that is added to all its logits.
        bias_later: Number of each query that is added to its logits of later keys.
        portions: Groups of rows that are processed at once.
        normalise: Whether rows of A are normalised.
    """
    flat = (tensor.flatten(0, 1) for tensor in (q, k, v))
    attended: Tensor = _NearestMatch.run(*flat, bias_near, bias_later, portions, normalise)
    return attended.view(q.shape)


class RoutingAttention(nn.Module):
    """Base of both kinds of attention: projections without biases, a content bias, a learned scale.

    Dropout is applied to elements of keys, not to weights. Projections start Xavier-uniform by the size of
    one head.
    """

    sorts: ClassVar[bool] = False
    """Whether rows are processed longest first, where `layers.head_rows.sorts_rows` holds."""

    def __init__(self, width: int, heads: int, head_width: int, dropout: float) -> None:
        super().__init__()
        inner = heads * head_width
        gain = ((width + inner) / (width + head_width)) ** 0.5
        self.query = XavierLinear(width, inner, bias=False, gain=gain)
        self.key = XavierLinear(width, inner, bias=False, gain=gain)
        self.value = XavierLinear(width, inner, bias=False, gain=gain)
        self.output = XavierLinear(inner, width, bias=False, gain=gain)
        self.content_bias = Constant(heads, head_width, value=0.0)
        self.scale = Constant(1, value=head_width**-0.5)
        self.key_dropout = KeyedDropout(dropout, inner)
        self.heads = heads

    def attend(
        self, x: Float[Tensor, "M D"], queries: Float[Tensor, "M H E"], rows: _Rows, packing: Packing
    ) -> Float[Tensor, "B H T E"]:
        """Return the attention output of `queries` over their `rows`."""
        raise NotImplementedError

    def forward(
        self, x: Float[Tensor, "M D"], packing: Packing, positions: Int[Tensor, " M"]
    ) -> Float[Tensor, "M D"]:
        """Return the attention output of each token over its row."""
        queries = self.split(self.query(x))
        biased_queries = self.add_content_bias(queries, self.content_bias())
        keys = self.split(self.key_dropout(self.key(x), positions))
        values = self.split(self.value(x))
        biased_queries, keys, values = (
            pad_heads(tensor, packing, self.sorts) for tensor in (biased_queries, keys, values)
        )
        attended = unpad_heads(
            self.attend(x, queries, (biased_queries, keys, values), packing), packing, self.sorts
        )
        result: Tensor = self.output(attended.flatten(1))
        return result

    def add_content_bias(
        self, queries: Float[Tensor, "M H E"], bias: Float[Tensor, "H E"]
    ) -> Float[Tensor, "M H E"]:
        """Return queries plus `bias`, times the scale of logits, because queries are fewer than logits."""
        biased_queries: Tensor = (queries + bias.to(queries.dtype)) * self.scale().to(queries.dtype)
        return biased_queries

    def split(self, x: Float[Tensor, "M I"]) -> Float[Tensor, "M H E"]:
        """Return `x` with a separate axis for heads."""
        return x.reshape(x.shape[0], self.heads, -1)


class GeometricAttention(RoutingAttention):
    """Attention to the nearest match (geometric attention)."""

    sorts: ClassVar[bool] = True

    def __init__(
        self, width: int, heads: int, head_width: int, dropout: float, *, direction: bool, normalise: bool
    ) -> None:
        super().__init__(width, heads, head_width, dropout)
        self.bias = Constant(1, value=0.0)
        self.direction = Linear(width, 2 * heads) if direction else None
        self.direction_scale = Constant(1, value=1.0) if direction else None
        self.normalise = normalise

    def attend(
        self,
        x: Float[Tensor, "M D"],
        queries: Float[Tensor, "M H E"],  # noqa: ARG002 no positions here
        rows: _Rows,
        packing: Packing,
    ) -> Float[Tensor, "B H T E"]:
        """Return the values weighted by A, with rows summing to one if normalised."""
        dtype = sum_dtype(rows[0].dtype)
        heads = self.heads
        portions = packing.get_cached(
            ("portions", heads, dtype), lambda: split_portions(packing, heads, dtype)
        )
        bias_near, bias_later = self.bias().to(dtype).expand(*rows[0].shape[:-1], 1), None
        if self.direction is not None:
            earlier_bias, later_bias = self._direction_biases(x, packing, dtype)
            bias_near, bias_later = (earlier_bias + self.bias()).to(dtype), later_bias - earlier_bias
            if sorts_rows(packing):
                bias_near, bias_later = (
                    take(bias, length_order(packing)) for bias in (bias_near, bias_later)
                )
        return attend_nearest(*rows, bias_near, bias_later, portions, normalise=self.normalise)

    def _direction_biases(
        self, x: Tensor, packing: Packing, dtype: torch.dtype
    ) -> tuple[Float[Tensor, "B H T 1"], Float[Tensor, "B H T 1"]]:
        """Return what each query adds to its logits for earlier keys, and for later keys."""
        assert self.direction is not None
        assert self.direction_scale is not None
        biases = packing.pad(self.direction(x) * self.direction_scale())
        earlier_bias, later_bias = (
            biases.to(dtype).reshape(*biases.shape[:2], self.heads, 2, 1).transpose(1, 2).unbind(3)
        )
        return earlier_bias, later_bias


class RelativeAttention(RoutingAttention):
    """Softmax over content and sinusoidal positions; a gate mixes relative and absolute positions.

    This is the attention of the Neural Data Router without geometric attention.
    """

    def __init__(self, width: int, heads: int, head_width: int, dropout: float) -> None:
        super().__init__(width, heads, head_width, dropout)
        self.position = XavierLinear(width, heads * head_width, bias=False)
        self.position_bias = Constant(heads, head_width, value=0.0)
        self.position_dropout = KeyedDropout(dropout)
        self.relative = Linear(width, heads)

    def attend(
        self, x: Float[Tensor, "M D"], queries: Float[Tensor, "M H E"], rows: _Rows, packing: Packing
    ) -> Float[Tensor, "B H T E"]:
        """Return the values weighted by a softmax over the keys of each row."""
        content = rows[0] @ rows[1].transpose(2, 3)
        weights = self._weights(x, queries, content.to(sum_dtype(content.dtype)), packing)
        return weights.to(rows[2].dtype) @ rows[2]

    def _weights(
        self,
        x: Float[Tensor, "M D"],
        queries: Float[Tensor, "M H E"],
        content: Float[Tensor, "B H T T"],
        packing: Packing,
    ) -> Float[Tensor, "B H T T"]:
        biased_queries = packing.pad(self.add_content_bias(queries, self.position_bias())).transpose(1, 2)
        position_logits = self._positions(x, packing.width).to(biased_queries.dtype)
        scores = (biased_queries @ position_logits.permute(1, 2, 0)).to(content.dtype)
        positions = torch.arange(packing.width, device=x.device)
        offset = positions - positions[:, None] + packing.width - 1
        relative = scores.gather(-1, offset.expand_as(content))
        absolute = scores[..., packing.width - 1 :]
        gate = packing.pad(self.relative(x)).sigmoid().transpose(1, 2)[..., None].to(content.dtype)
        logits = content + gate * relative + (1 - gate) * absolute
        return (logits + additive_mask(packing.mask[:, None, None], logits.dtype)).softmax(-1)

    def _positions(self, x: Tensor, width: int) -> Tensor:
        """Return the projected sinusoids of all offsets from 1 - `width` to `width` - 1."""
        offsets = torch.arange(1 - width, width, device=x.device)
        codes = sinusoids(offsets, x.shape[-1]).to(self.position.weight.dtype)
        position_keys: Tensor = self.split(self.position_dropout(self.position(codes), offsets))
        return position_keys


def sinusoids(position: Int[Tensor, " P"], width: int) -> Float[Tensor, "P D"]:
    """Return alternating sines and cosines of p * 10000^(-2i/width) in the pair (2i, 2i+1)."""
    pair = torch.arange((width + 1) // 2, device=position.device, dtype=torch.float64)
    angle = position[:, None] * SINUSOID_BASE ** (-2 * pair / width)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1)[:, :width]
