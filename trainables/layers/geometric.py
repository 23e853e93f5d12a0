"""Attention of the Neural Data Router: the nearest matching position gets the weight.

Source: Csordas, Irie and Schmidhuber, The Neural Data Router, with their released code; restated in Ray
Chowdhury and Caragea, On the Design Space Between Transformers and Recursive Neural Nets, Eq. 4-7. With a
match probability C_ij = sigmoid(logit_ij), never with itself or padding,

    A_ij = C_ij * prod_{k in S_ij} (1 - C_ik),

where S_ij holds all k other than i and j that are nearer to i than j is, and for j < i also the one as far to
the right: of two equally far positions the right one is tried first. In log space every product is a running
sum over the keys in the order in which a query tries them.

The logit is scale * (q_i + u) . k_j + bias, and one of two numbers that query i has for all that comes after
it and all that comes before it (direction sensitivity), which the second source leaves out of Eq. 5 as a
detail. Row normalisation is a softmax over log A; the released code divides by a sum kept above 1e-12.
"""

from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.layers.attention import barring
from trainables.layers.dropout import KeyedDropout
from trainables.layers.linear import Constant, Linear, XavierLinear, addcmul
from trainables.layers.packing import Packing
from trainables.layers.stacked import for_all, stacked
from trainables.types import sum_dtype

SINUSOID_BASE = 10_000.0


class _FirstMatch(torch.autograd.Function):
    """log-probability that a key matches and none before it does, in the `order` in which queries try keys.

    With l the logits in that order it is l_j - sum_{k<=j} log(1 + exp(l_k)), because log C = l + log (1 - C).
    `back` undoes `order`; both index the last two axes as one, and repeat nothing.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, order: Tensor, back: Tensor) -> Tensor:
        tried = _permuted(logits, order)
        ctx.save_for_backward(tried, order, back)
        # The default threshold of softplus changes results in 64 bits.
        return _permuted(tried - F.softplus(tried, threshold=40).cumsum_(-1), back)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        tried, order, back = ctx.saved_tensors
        grad = _permuted(grads[0], order)
        upto = grad.cumsum(-1)
        behind = upto[..., -1:] - upto + grad
        return _permuted(grad - behind * tried.sigmoid(), back), None, None


def _permuted(x: Float[Tensor, "B H T T"], order: Int[Tensor, " T_T"]) -> Float[Tensor, "B H T T"]:
    return x.flatten(0, 1).flatten(1).index_select(1, order).view(x.shape)


@lru_cache(maxsize=2)
@torch.inference_mode(mode=False)
def _key_order(width: int, device: torch.device) -> tuple[Int[Tensor, " T_T"], Int[Tensor, " T_T"]]:
    """In what order each of `width` queries tries its keys, itself last, and what undoes that.

    Made once for all layers, outside of inference mode: what is made inside cannot be used in training.
    """
    here = torch.arange(width, device=device)
    query, key = here[:, None], here
    rank = (2 * (key - query).abs() - (key > query).long()).fill_diagonal_(2 * width)
    order = rank.argsort(-1)
    begin = query * width
    return (order + begin).flatten(), (order.argsort(-1) + begin).flatten()


def log_nearest_match(
    logits: Float[Tensor, "B H T T"], keys: Bool[Tensor, "B T"]
) -> Float[Tensor, "B H T T"]:
    """log A: for every query, the log-probability that each key is the nearest match; right-padded `keys`."""
    width = logits.shape[-1]
    itself = torch.eye(width, dtype=torch.bool, device=logits.device)
    barred = barring((~itself & keys[:, None])[:, None], logits.dtype)
    logits = logits + barred
    if stacked():
        return for_all(lambda logits: _first_match(logits.flatten(0, 1)).view(logits.shape), logits)
    return _first_match(logits)


def _first_match(logits: Float[Tensor, "B H T T"]) -> Float[Tensor, "B H T T"]:
    order = _key_order(logits.shape[-1], logits.device)
    found: Tensor = _FirstMatch.apply(logits, *order)  # type: ignore[no-untyped-call]
    return found


class RoutingAttention(nn.Module):
    """What both kinds of attention share: projections without biases, a content bias, a learned scale.

    Dropout takes elements of keys, not weights. Projections start Xavier-uniform by the size of one head.
    """

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

    def weigh(
        self,
        x: Float[Tensor, "M D"],
        queries: Float[Tensor, "M H E"],
        content: Float[Tensor, "B H T T"],
        packing: Packing,
    ) -> Float[Tensor, "B H T T"]:
        """Attention weights, given what queries with their bias find in keys, scaled."""
        raise NotImplementedError

    def forward(
        self, x: Float[Tensor, "M D"], packing: Packing, place: Int[Tensor, " M"]
    ) -> Float[Tensor, "M D"]:
        """What each token gathers from its row."""
        queries = self.split(self.query(x))
        keys = packing.pad(self.split(self.key_dropout(self.key(x), place)))
        values = packing.pad(self.split(self.value(x)))
        asking = packing.pad(
            (queries + self.content_bias().to(queries.dtype)) * self.scale().to(queries.dtype)
        )
        content = asking.transpose(1, 2) @ keys.permute(0, 2, 3, 1)
        weights = self.weigh(x, queries, content.to(sum_dtype(content.dtype)), packing)
        gathered = (weights.to(values.dtype) @ values.transpose(1, 2)).transpose(1, 2)
        out: Tensor = self.output(packing.unpad(gathered).flatten(1))
        return out

    def biased(self, queries: Float[Tensor, "M H E"], bias: Float[Tensor, "H E"]) -> Float[Tensor, "M H E"]:
        """Queries, scaled here, where the tensor is smallest."""
        asking: Tensor = (queries + bias.to(queries.dtype)) * self.scale().to(queries.dtype)
        return asking

    def split(self, x: Float[Tensor, "M I"]) -> Float[Tensor, "M H E"]:
        """One vector a head."""
        return x.reshape(x.shape[0], self.heads, -1)


class GeometricAttention(RoutingAttention):
    """The nearest match wins."""

    def __init__(
        self, width: int, heads: int, head_width: int, dropout: float, *, direction: bool, normalise: bool
    ) -> None:
        super().__init__(width, heads, head_width, dropout)
        self.bias = Constant(1, value=0.0)
        self.direction = Linear(width, 2 * heads) if direction else None
        self.direction_scale = Constant(1, value=1.0) if direction else None
        self.normalise = normalise

    def weigh(
        self,
        x: Float[Tensor, "M D"],
        queries: Float[Tensor, "M H E"],  # noqa: ARG002 positions ask nothing here
        content: Float[Tensor, "B H T T"],
        packing: Packing,
    ) -> Float[Tensor, "B H T T"]:
        """A, its rows summing to one if they are to be normalised."""
        if self.direction is None:
            logits = content + self.bias()
        else:
            before, after = self._sides(x, packing, content.dtype)
            # Sums and products: on a CPU, choosing by a mask that is spread over heads is ten times as slow.
            later = torch.ones(content.shape[-2:], dtype=content.dtype, device=x.device).triu(1)
            logits = addcmul(content + (before + self.bias()), after - before, later)
        log_weights = log_nearest_match(logits, packing.mask)
        return log_weights.softmax(-1) if self.normalise else log_weights.exp()

    def _sides(
        self, x: Tensor, packing: Packing, dtype: torch.dtype
    ) -> tuple[Float[Tensor, "B H T 1"], Float[Tensor, "B H T 1"]]:
        """The numbers of each query for keys before it (first of a head's two) and after it."""
        assert self.direction is not None
        assert self.direction_scale is not None
        both = packing.pad(self.direction(x) * self.direction_scale())
        before, after = both.to(dtype).reshape(*both.shape[:2], self.heads, 2, 1).transpose(1, 2).unbind(3)
        return before, after


class RelativeAttention(RoutingAttention):
    """Softmax over content and sinusoidal positions, which a gate takes relative to the query or absolute.

    What the Neural Data Router is without geometric attention.
    """

    def __init__(self, width: int, heads: int, head_width: int, dropout: float) -> None:
        super().__init__(width, heads, head_width, dropout)
        self.position = XavierLinear(width, heads * head_width, bias=False)
        self.position_bias = Constant(heads, head_width, value=0.0)
        self.position_dropout = KeyedDropout(dropout)
        self.relative = Linear(width, heads)

    def weigh(
        self,
        x: Float[Tensor, "M D"],
        queries: Float[Tensor, "M H E"],
        content: Float[Tensor, "B H T T"],
        packing: Packing,
    ) -> Float[Tensor, "B H T T"]:
        """Softmax over the keys of each row."""
        asking = packing.pad(self.biased(queries, self.position_bias())).transpose(1, 2)
        found = self._positions(x, packing.width).to(asking.dtype)
        scores = (asking @ found.permute(1, 2, 0)).to(content.dtype)
        here = torch.arange(packing.width, device=x.device)
        offset = here - here[:, None] + packing.width - 1
        relative = scores.gather(-1, offset.expand_as(content))
        absolute = scores[..., packing.width - 1 :]
        gate = packing.pad(self.relative(x)).sigmoid().transpose(1, 2)[..., None].to(content.dtype)
        logits = content + gate * relative + (1 - gate) * absolute
        return (logits + barring(packing.mask[:, None, None], logits.dtype)).softmax(-1)

    def _positions(self, x: Tensor, width: int) -> Tensor:
        """What queries find in offsets from 1 - `width` to `width` - 1."""
        offsets = torch.arange(1 - width, width, device=x.device)
        codes = sinusoids(offsets, x.shape[-1]).to(self.position.weight.dtype)
        found: Tensor = self.split(self.position_dropout(self.position(codes), offsets))
        return found


def sinusoids(position: Int[Tensor, " P"], width: int) -> Float[Tensor, "P D"]:
    """Sines and cosines alternating, of p * 10000^(-2i/width) in the pair (2i, 2i+1)."""
    pair = torch.arange((width + 1) // 2, device=position.device, dtype=torch.float64)
    angle = position[:, None] * SINUSOID_BASE ** (-2 * pair / width)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1)[:, :width]
