"""Sparse mixtures of experts: a router picks k of E experts for each token, and no other expert is run.

Source: Tan et al., Sparse Universal Transformer, s. 3.1, with the router of their released code:

    g(. | x) = softmax(W_b Drop(tanh(W_a x + b_a)))          y = sum over the k likeliest e of gate_e * f_e(x)

where gates are the k probabilities divided by their sum. In training the last of the k can be drawn by their
probabilities instead, without replacement, as in the released script of the big model. Tokens are sorted by
expert, so that each expert is one matrix product on the tokens that chose it, and one that nobody chose is
not called at all.

Legend: M tokens, E experts, k experts a token, P = M k pairs of a token and its expert, sorted by expert.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.layers.dropout import KeyedDropout, KeyedNoise
from trainables.layers.host import Function
from trainables.layers.linear import Initialised, Linear, Stream, dtype_of_products
from trainables.layers.mask_draws import scattered
from trainables.layers.tokens import Placed
from trainables.settings import Settings, Small
from trainables.types import sum_dtype

GATE_EPSILON = 1e-6
"""Added to the sum that gates are divided by."""


class MixtureSettings(Settings):
    """How many experts there are, and how many of them a token needs."""

    experts: Annotated[int, Small(3)] = Field(default=24, ge=1)
    """E: experts there are."""
    active: Annotated[int, Small(2, 3)] = Field(default=4, ge=1)
    """k: experts that each token is sent to."""
    sampled: Annotated[int, Small(0, 1)] = Field(default=0, ge=0)
    """How many of these are sampled by their probabilities in training, instead of being the next
    likeliest."""

    @model_validator(mode="after")
    def _enough(self) -> "MixtureSettings":
        if self.active > self.experts:
            raise ValueError(
                f"active must be at most experts, got active={self.active} and experts={self.experts};"
                " lower active or add experts"
            )
        most = self.active if self.active < self.experts else 0
        if self.sampled > most:
            raise ValueError(
                f"sampled must be at most active, and 0 where all experts are active, got"
                f" sampled={self.sampled}, active={self.active} and experts={self.experts}; lower sampled"
            )
        return self


class FeedforwardSettings(MixtureSettings):
    """Mixture of feed-forwards: the published (E, k, D)."""

    width: Annotated[int, Small(5)] = Field(default=512, ge=1)
    """D: inner size of one expert."""


class ExpertLinear(Initialised):
    """E linear maps of one shape. Weights start even in +-1/inputs, biases in +-1/sqrt(outputs).

    The bound of biases is that of the released code, whose weights are transposed, so that what PyTorch takes
    for the number of inputs is that of outputs.
    """

    def __init__(self, experts: int, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(experts, outputs)) if bias else None

    def initialise(self, stream: Stream) -> None:
        """Weights, then biases."""
        outputs, inputs = self.weight.shape[1:]
        with torch.no_grad():
            self.weight.uniform_(-1 / inputs, 1 / inputs, generator=stream("weight"))
            if self.bias is not None:
                self.bias.uniform_(-(outputs**-0.5), outputs**-0.5, generator=stream("bias"))

    def forward(self, x: Float[Tensor, "P I"], counts: list[int]) -> Float[Tensor, "P O"]:
        """Rows of `x`, of which the first `counts[0]` belong to expert 0, the next to expert 1, and so on."""
        dtype = dtype_of_products(self.weight)
        bias = None if self.bias is None else self.bias.to(dtype)
        found: Tensor = _Linears.run(x.to(dtype), self.weight.to(dtype), bias, counts)
        return found


class _Linears(Function):
    """The maps of all experts, each written where its rows are: nothing is put together afterwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, counts: list[int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.counts, ctx.has_bias = counts, bias is not None
        out = x.new_empty((x.shape[0], weight.shape[1]))
        for expert, part, into in _shares(counts, x, out):
            columns = weight[expert].t()
            if bias is None:
                torch.mm(part, columns, out=into)
            else:
                torch.addmm(bias[expert], part, columns, out=into)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (x, weight), counts = grads, ctx.saved_tensors, ctx.counts
        back = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        # An expert that nobody chose has a gradient of zero.
        of_weight = (torch.empty_like if all(counts) else torch.zeros_like)(weight)
        of_bias = weight.new_zeros(weight.shape[:2]) if ctx.has_bias else None
        for expert, part, given in _shares(counts, x, grad):
            torch.mm(given.t(), part, out=of_weight[expert])
            if of_bias is not None:
                torch.sum(given, 0, out=of_bias[expert])
        if back is not None:
            for expert, into, given in _shares(counts, back, grad):
                torch.mm(given, weight[expert], out=into)
        return back, of_weight, of_bias, None


def _shares(counts: list[int], one: Tensor, other: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Rows of both of each expert that has any, with its number."""
    shares = zip(torch.split(one, counts), torch.split(other, counts), strict=True)
    return ((expert, *parts) for expert, parts in enumerate(shares) if counts[expert])


class _Permute(Function):
    """Rows of `x` in `order`, which `back` undoes; both ways one copy, where indexing would add."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (back,) = ctx.saved_tensors
        return grads[0].index_select(0, back), None, None


class _Dispatch(Function):
    """Each row of `x` `copies` times, in `order`, which `back` undoes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, back: Tensor, copies: int) -> Tensor:
        ctx.save_for_backward(back)
        ctx.copies = copies
        return x.index_select(0, order.div(copies, rounding_mode="floor"))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (back,) = ctx.saved_tensors
        grad = grads[0].index_select(0, back)
        return grad.view(-1, ctx.copies, grad.shape[-1]).sum(1), None, None, None


@dataclass(frozen=True)
class Routing:
    """Which experts M tokens chose."""

    log_probabilities: Float[Tensor, "M E"]
    """log g(e | x) of all experts, in 32 bits or more."""
    chosen: Int[Tensor, "M k"]
    gates: Float[Tensor, "M k"]

    @property
    def active(self) -> int:
        """k."""
        return self.chosen.shape[1]

    @cached_property
    def counts(self) -> list[int]:
        """Pairs of each expert."""
        chosen = self.chosen.flatten()
        counts = torch.zeros(self.log_probabilities.shape[1], dtype=chosen.dtype, device=chosen.device)
        # Counting by `bincount` makes the host wait once more.
        found: list[int] = counts.scatter_add_(0, chosen, torch.ones_like(chosen)).tolist()
        return found

    @cached_property
    def order(self) -> Int[Tensor, " P"]:
        """Pairs, counted token by token, in the order of their experts."""
        return self.chosen.flatten().argsort(stable=True)

    @cached_property
    def back(self) -> Int[Tensor, " P"]:
        """Where `order` puts each pair."""
        return self.order.argsort()

    def dispatch(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "P D"]:
        """Each token once for each of its experts."""
        copies: Tensor = _Dispatch.run(x, self.order, self.back, self.active)
        return copies

    def sort(self, x: Float[Tensor, "M k D"]) -> Float[Tensor, "P D"]:
        """Values of each token for each of its experts, in the order of the experts."""
        ordered: Tensor = _Permute.run(x.flatten(0, 1), self.order, self.back)
        return ordered

    def collect(self, y: Float[Tensor, "P D"]) -> Float[Tensor, "M k D"]:
        """Outputs of the experts in the order of the tokens."""
        pairs: Tensor = _Permute.run(y, self.back, self.order)
        return pairs.view(*self.chosen.shape, -1)

    def mix(self, y: Float[Tensor, "P D"]) -> Float[Tensor, "M D"]:
        """Sum of the outputs of the experts, weighted by the gates."""
        return (self.gates[..., None].to(y.dtype) * self.collect(y)).sum(1)


def pair_places(placed: Placed, active: int) -> Int[Tensor, "M k"]:
    """A place for each token and each of its `active` experts, for dropout."""

    def made() -> tuple[Tensor, Tensor]:
        slots = _slots(active, placed.place.device)
        return placed.place, scattered(placed.place.to(torch.int32)[:, None] ^ slots)

    # The place stays with what was made of it, so that no other gets its number.
    found: Tensor = placed.packing.once(("pair places", active, id(placed.place)), made)[1]
    return found


@cache
@torch.inference_mode(mode=False)
def _slots(active: int, device: torch.device) -> Int[Tensor, " k"]:
    # Numbers from the far end, which no place was made from.
    return scattered(-1 - torch.arange(active, device=device))


class Router(nn.Module):
    """Probabilities of experts, from a tanh layer; without parameters where there is one expert."""

    def __init__(self, width: int, mixture: MixtureSettings, dropout: float) -> None:
        super().__init__()
        chooses = mixture.experts > 1
        self.inner = Linear(width, width) if chooses else None
        self.outer = Linear(width, mixture.experts, bias=False) if chooses else None
        self.dropout = KeyedDropout(dropout if chooses else 0.0, width)
        self.noise = KeyedNoise()
        self.active = mixture.active
        self.sampled = mixture.sampled

    def forward(self, x: Float[Tensor, "M D"], placed: Placed) -> Routing:
        """The `active` likeliest experts of each token, in training `sampled` of them drawn instead."""
        exact = sum_dtype(x.dtype)
        if self.inner is None or self.outer is None:
            sure = torch.zeros(x.shape[0], 1, dtype=exact, device=x.device)
            return Routing(sure, torch.zeros_like(sure, dtype=torch.int64), torch.ones_like(sure))
        logits = self.outer(self.dropout(self.inner(x).tanh(), placed.place))
        log_probabilities = logits.to(exact).log_softmax(-1)
        likeliest, chosen = log_probabilities.exp().topk(self.active, dim=1)
        if self.training and self.sampled:
            chosen = self._partly_drawn(log_probabilities.detach(), chosen, placed)
            likeliest = log_probabilities.exp().gather(1, chosen)
        gates = likeliest / (likeliest.sum(1, keepdim=True) + GATE_EPSILON)
        return Routing(log_probabilities, chosen, gates)

    def _partly_drawn(
        self, log_probabilities: Float[Tensor, "M E"], likeliest: Int[Tensor, "M k"], placed: Placed
    ) -> Int[Tensor, "M k"]:
        """The last `sampled` of the `likeliest` replaced by others, drawn from all that are left."""
        sure = likeliest[:, : self.active - self.sampled]
        # The greatest of log-probabilities with Gumbel noise are drawn by their probabilities.
        noise = -(-self.noise(placed.place, log_probabilities.shape[1]).log()).log()
        left = (log_probabilities + noise).scatter(1, sure, float("-inf"))
        return torch.cat((sure, left.topk(self.sampled, dim=1).indices), 1)


class ExpertFeedForward(nn.Module):
    """Of each expert, W2 Drop(GELU(W1 x + b1)) + b2."""

    def __init__(
        self, width: int, mixture: FeedforwardSettings, dropout: float, gating_dropout: float
    ) -> None:
        super().__init__()
        self.router = Router(width, mixture, gating_dropout)
        self.inner = ExpertLinear(mixture.experts, width, mixture.width, bias=True)
        self.outer = ExpertLinear(mixture.experts, mixture.width, width, bias=True)
        self.inner_dropout = KeyedDropout(dropout)

    def forward(self, x: Float[Tensor, "M D"], placed: Placed) -> tuple[Float[Tensor, "M D"], Routing]:
        """Each token by the experts it chose, and which these are."""
        routing: Routing = self.router(x, placed)
        inner = F.gelu(self.inner(routing.dispatch(x), routing.counts))
        if self.inner_dropout.active:
            places = pair_places(placed, routing.active).flatten().index_select(0, routing.order)
            inner = self.inner_dropout(inner, places)
        return routing.mix(self.outer(inner, routing.counts)), routing


@dataclass(frozen=True)
class Use:
    """How M tokens used one mixture in one layer."""

    log_probabilities: Float[Tensor, "M E"]
    chosen: Int[Tensor, "M k"]
    weight: Float[Tensor, " M"]
    """Survival probability of each token, 0 if it has halted."""


def mutual_information_loss(uses: list[Use]) -> Float[Tensor, ""]:
    """H(e | x) - H(e) = -I(e; x), between 0 and -log E, over all tokens x of all layers of one mixture.

    Source: Tan et al., Sparse Universal Transformer, Eq. 1: minimised, although the text says maximised and
    the released code loses the sign of H(e). As in that code, a token is weighted by its survival
    probability.
    """
    total = _sum([use.weight for use in uses])
    marginal = _sum([use.weight[:, None] * use.log_probabilities.exp() for use in uses]) / total
    conditional = _sum([use.weight * _entropy(use.log_probabilities) for use in uses]) / total
    loss: Tensor = conditional - torch.special.entr(marginal).sum()
    return loss


def switch_loss(uses: list[Use]) -> Float[Tensor, ""]:
    """E sum_e f_e P_e: shares of choices times mean probabilities, over the active tokens of all layers.

    Source: Fedus et al., Switch Transformers, Eq. 4, over the k choices of a token: 1 where use is even, up
    to E where all goes to one expert.
    """
    experts = uses[0].log_probabilities.shape[1]
    numbers = torch.arange(experts, device=uses[0].chosen.device)
    probability = _sum([_active(use) * use.log_probabilities.exp() for use in uses])
    choices = _sum([_active(use) * (use.chosen[..., None] == numbers).sum(1) for use in uses])
    return experts * (choices / choices.sum() * probability / probability.sum()).sum()


def _active(use: Use) -> Float[Tensor, "M 1"]:
    return (use.weight > 0).to(use.weight.dtype)[:, None]


def _sum(layers: list[Tensor]) -> Tensor:
    """Over the tokens of all layers."""
    return torch.stack([layer.sum(0) for layer in layers]).sum(0)


def _entropy(log_probabilities: Float[Tensor, "M E"]) -> Float[Tensor, " M"]:
    return -(log_probabilities.exp() * log_probabilities).sum(1)
