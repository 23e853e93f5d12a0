"""Sparse mixtures of experts: a router selects k of E experts for each token, and only these are run.

Source: Tan et al., Sparse Universal Transformer, s. 3.1, with the router of their released code:

    g(. | x) = softmax(W_b Drop(tanh(W_a x + b_a)))          y = sum over the k likeliest e of gate_e * f_e(x)

The gates are the k probabilities divided by their sum. In training, some of the k experts can be sampled by
their probabilities without replacement, as in the released script of the big model. Tokens are sorted by
expert, so each expert is one matrix product on its tokens. An expert without tokens is not called. Where
PyTorch has a kernel for the products of all experts, that kernel runs instead (`has_grouped_kernel`).

Legend: M tokens, E experts, k experts per token, P = M k pairs of token and expert, sorted by expert.
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

from trainables.layers.constant_shapes import cached_constants
from trainables.layers.dropout import KeyedDropout, KeyedNoise
from trainables.layers.host import Function
from trainables.layers.linear import Initialised, Linear, Stream, dtype_of_products
from trainables.layers.mask_draws import hash_numbers
from trainables.layers.packing import reorder
from trainables.layers.tokens import PlacedVectors
from trainables.settings import Settings, Small
from trainables.types import sum_dtype

GATE_EPSILON = 1e-6
"""Added to the divisor of the gates."""


class MixtureSettings(Settings):
    """Numbers of experts in total and per token."""

    experts: Annotated[int, Small(3)] = Field(default=24, ge=1)
    """E: number of experts."""
    active: Annotated[int, Small(2, 3)] = Field(default=4, ge=1)
    """k: number of experts for each token."""
    sampled: Annotated[int, Small(0, 1)] = Field(default=0, ge=0)
    """Number of these k experts that are sampled by their probabilities in training, instead of taking the
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
    """E linear maps of one shape.

    Weights start uniform in +-1/inputs, biases in +-1/sqrt(outputs). The bound of the biases is that of the
    released code. Its weights are transposed, so PyTorch takes the number of outputs for that of inputs.
    """

    def __init__(self, experts: int, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(experts, outputs)) if bias else None

    def initialise(self, stream: Stream) -> None:
        """Fill the weights, then the biases."""
        outputs, inputs = self.weight.shape[1:]
        with torch.no_grad():
            self.weight.uniform_(-1 / inputs, 1 / inputs, generator=stream("weight"))
            if self.bias is not None:
                self.bias.uniform_(-(outputs**-0.5), outputs**-0.5, generator=stream("bias"))

    def forward(self, x: Float[Tensor, "P I"], groups: "ExpertRows") -> Float[Tensor, "P O"]:
        """Apply the map of each expert to its rows.

        Args:
            x: Inputs of all pairs, (pairs, inputs), sorted by expert.
            groups: Consecutive rows of each expert.

        Returns:
            Outputs, (pairs, outputs), in the same order.
        """
        dtype = dtype_of_products(self.weight)
        bias = None if self.bias is None else self.bias.to(dtype)
        maps = _GroupedLinears if has_grouped_kernel(self.weight, dtype) else _Linears
        output: Tensor = maps.run(x.to(dtype), self.weight.to(dtype), bias, groups)
        return output


@dataclass(frozen=True)
class ExpertRows:
    """Partition of P rows, which are sorted by expert, into one group for each expert."""

    counts: Int[Tensor, " E"]
    """Number of rows of each expert."""
    rows: int
    """P: number of rows."""

    @cached_property
    def host_counts(self) -> list[int]:
        """`counts` on the host, which waits for the device."""
        host_counts: list[int] = self.counts.tolist()
        return host_counts

    @cached_property
    def ends(self) -> Int[Tensor, " E"]:
        """Index after the last row of each expert."""
        return self.counts.cumsum(0, dtype=torch.int32)

    @cached_property
    def expert(self) -> Int[Tensor, " P"]:
        """Expert of each row."""
        return torch.repeat_interleave(self.counts, output_size=self.rows)


GROUPED_MAJORS = (9, 10)
"""Major compute capabilities for which PyTorch 2.10 to 2.13 have a kernel of grouped products."""
GROUPED_ALIGNMENT = 8
"""Divisor of the sizes of grouped products: 16 bytes in bfloat16."""
GROUPED_EXPERTS_MAX = 1023
"""Greatest number of experts in one kernel."""


def has_grouped_kernel(weight: Float[Tensor, "E O I"], dtype: torch.dtype) -> bool:
    """Return whether the products of all experts run as one kernel without a wait for the device.

    Elsewhere `torch.nn.functional.grouped_mm` raises an error, or it waits for the numbers of rows and then
    runs a product for each expert.
    """
    experts, *sizes = weight.shape
    return (
        dtype == torch.bfloat16
        and weight.is_cuda
        and experts <= GROUPED_EXPERTS_MAX
        and all(size % GROUPED_ALIGNMENT == 0 for size in sizes)
        and _device_has_grouped_kernel(weight.device)
    )


@cache
def _device_has_grouped_kernel(device: torch.device) -> bool:
    if torch.version.hip is not None or not hasattr(F, "grouped_mm"):
        return False
    return torch.cuda.get_device_capability(device)[0] in GROUPED_MAJORS


class _Linears(Function):
    """The maps of all experts, each written to its rows of one output tensor without a concatenation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, groups: ExpertRows) -> Tensor:
        counts = groups.host_counts
        ctx.save_for_backward(x, weight)
        ctx.counts, ctx.has_bias = counts, bias is not None
        output = x.new_empty((x.shape[0], weight.shape[1]))
        for expert, part, target_rows in _rows_by_expert(counts, x, output):
            columns = weight[expert].t()
            if bias is None:
                torch.mm(part, columns, out=target_rows)
            else:
                torch.addmm(bias[expert], part, columns, out=target_rows)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (x, weight), counts = grads, ctx.saved_tensors, ctx.counts
        input_gradient = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        # An expert without tokens has a gradient of zero.
        weight_gradient = (torch.empty_like if all(counts) else torch.zeros_like)(weight)
        bias_gradient = weight.new_zeros(weight.shape[:2]) if ctx.has_bias else None
        for expert, part, part_gradient in _rows_by_expert(counts, x, grad):
            torch.mm(part_gradient.t(), part, out=weight_gradient[expert])
            if bias_gradient is not None:
                torch.sum(part_gradient, 0, out=bias_gradient[expert])
        if input_gradient is not None:
            for expert, target_rows, part_gradient in _rows_by_expert(counts, input_gradient, grad):
                torch.mm(part_gradient, weight[expert], out=target_rows)
        return input_gradient, weight_gradient, bias_gradient, None


class _GroupedLinears(Function):
    """The maps of all experts, each product as one kernel that reads the numbers of rows on the device.

    PyTorch's own gradient leaves the weights of experts without rows undefined on some devices
    (https://github.com/pytorch/pytorch/issues/172439), and adds gradients of biases in no fixed order.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, groups: ExpertRows) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, weight)
        ctx.groups, ctx.has_bias = groups, bias is not None
        output = F.grouped_mm(x, weight.transpose(1, 2), offs=groups.ends)
        return output if bias is None else output.add_(bias.index_select(0, groups.expert))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), groups = ctx.saved_tensors, ctx.groups
        grad = grads[0].contiguous()

        def sum_by_expert(rows: Tensor) -> Tensor:
            # With other strides the kernel requires that each group has rows.
            sums = F.grouped_mm(grad.t(), rows, offs=groups.ends)
            return sums.masked_fill_((groups.counts == 0)[:, None, None], 0)

        input_gradient = F.grouped_mm(grad, weight, offs=groups.ends) if ctx.needs_input_grad[0] else None
        bias_gradient = None
        if ctx.has_bias:
            # A product with ones sums the rows of each expert.
            bias_gradient = sum_by_expert(grad.new_ones(grad.shape[0], GROUPED_ALIGNMENT))[..., 0]
        return input_gradient, sum_by_expert(x), bias_gradient, None


def _rows_by_expert(counts: list[int], first: Tensor, second: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield for each expert with rows its index, its rows of `first` and its rows of `second`."""
    shares = zip(torch.split(first, counts), torch.split(second, counts), strict=True)
    return ((expert, *parts) for expert, parts in enumerate(shares) if counts[expert])


class _Dispatch(Function):
    """Each row of `x` repeated `copies` times, in `order`; `inverse_order` is the inverse permutation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse_order: Tensor, copies: int) -> Tensor:
        ctx.save_for_backward(inverse_order)
        ctx.copies = copies
        return x.index_select(0, order.div(copies, rounding_mode="floor"))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse_order,) = ctx.saved_tensors
        grad = grads[0].index_select(0, inverse_order)
        return grad.view(-1, ctx.copies, grad.shape[-1]).sum(1), None, None, None


@dataclass(frozen=True)
class Routing:
    """Experts selected for M tokens."""

    log_probabilities: Float[Tensor, "M E"]
    """log g(e | x) of all experts, in at least 32 bits."""
    chosen: Int[Tensor, "M k"]
    gates: Float[Tensor, "M k"]

    @property
    def active(self) -> int:
        """k: number of experts per token."""
        return self.chosen.shape[1]

    @cached_property
    def groups(self) -> ExpertRows:
        """Consecutive (token, expert) pairs of each expert."""
        flat_choices = self.chosen.flatten()
        counts = torch.zeros(
            self.log_probabilities.shape[1], dtype=flat_choices.dtype, device=flat_choices.device
        )
        # `bincount` would make the host wait one more time.
        return ExpertRows(
            counts.scatter_add_(0, flat_choices, torch.ones_like(flat_choices)), flat_choices.shape[0]
        )

    @cached_property
    def order(self) -> Int[Tensor, " P"]:
        """Indices of the pairs (numbered token by token), sorted by expert."""
        return self.chosen.flatten().argsort(stable=True)

    @cached_property
    def inverse_order(self) -> Int[Tensor, " P"]:
        """Index of each pair within `order`: its inverse permutation."""
        return self.order.argsort()

    def dispatch(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "P D"]:
        """Copy each token once for each of its experts; return the copies sorted by expert."""
        copies: Tensor = _Dispatch.run(x, self.order, self.inverse_order, self.active)
        return copies

    def sort(self, x: Float[Tensor, "M k D"]) -> Float[Tensor, "P D"]:
        """Sort values of (token, expert) pairs by expert."""
        return reorder(x.flatten(0, 1), self.order, self.inverse_order)

    def collect(self, y: Float[Tensor, "P D"]) -> Float[Tensor, "M k D"]:
        """Return the outputs of the experts in the order of the tokens."""
        return reorder(y, self.inverse_order, self.order).view(*self.chosen.shape, -1)

    def mix(self, y: Float[Tensor, "P D"]) -> Float[Tensor, "M D"]:
        """Return the sum of the outputs of the experts of each token, weighted by the gates."""
        return (self.gates[..., None].to(y.dtype) * self.collect(y)).sum(1)


def pair_places(placed_tokens: PlacedVectors, active: int) -> Int[Tensor, "M k"]:
    """Return the place of each (token, active expert) pair, from which its dropout masks are computed."""

    def build() -> tuple[Tensor, Tensor]:
        slots = _slots(active, placed_tokens.place.device)
        return placed_tokens.place, hash_numbers(placed_tokens.place.to(torch.int32)[:, None] ^ slots)

    # The cache keeps a reference to `place`, so that no other tensor can have the same `id`.
    places: Tensor = placed_tokens.packing.get_cached(
        ("pair places", active, id(placed_tokens.place)), build
    )[1]
    return places


@cached_constants(maxsize=None)
def _slots(active: int, device: torch.device) -> Int[Tensor, " k"]:
    # Negative numbers, because places are built from numbers from 0 on.
    return hash_numbers(-1 - torch.arange(active, device=device))


class Router(nn.Module):
    """Probabilities of experts from a tanh layer; has no parameters if there is one expert."""

    def __init__(self, width: int, mixture: MixtureSettings, dropout: float) -> None:
        super().__init__()
        has_choice = mixture.experts > 1
        self.inner = Linear(width, width) if has_choice else None
        self.outer = Linear(width, mixture.experts, bias=False) if has_choice else None
        self.dropout = KeyedDropout(dropout if has_choice else 0.0, width)
        self.noise = KeyedNoise()
        self.active = mixture.active
        self.sampled = mixture.sampled

    def forward(self, x: Float[Tensor, "M D"], placed_tokens: PlacedVectors) -> Routing:
        """Select `active` experts per token: the likeliest ones; in training, `sampled` of them are drawn."""
        score_dtype = sum_dtype(x.dtype)
        if self.inner is None or self.outer is None:
            fixed_experts = torch.zeros(x.shape[0], 1, dtype=score_dtype, device=x.device)
            return Routing(
                fixed_experts,
                torch.zeros_like(fixed_experts, dtype=torch.int64),
                torch.ones_like(fixed_experts),
            )
        logits = self.outer(self.dropout(self.inner(x).tanh(), placed_tokens.place))
        log_probabilities = logits.to(score_dtype).log_softmax(-1)
        likeliest, chosen_experts = log_probabilities.exp().topk(self.active, dim=1)
        if self.training and self.sampled:
            chosen_experts = self._sample_last_experts(
                log_probabilities.detach(), chosen_experts, placed_tokens
            )
            likeliest = log_probabilities.exp().gather(1, chosen_experts)
        gates = likeliest / (likeliest.sum(1, keepdim=True) + GATE_EPSILON)
        return Routing(log_probabilities, chosen_experts, gates)

    def _sample_last_experts(
        self,
        log_probabilities: Float[Tensor, "M E"],
        likeliest: Int[Tensor, "M k"],
        placed_tokens: PlacedVectors,
    ) -> Int[Tensor, "M k"]:
        """Return `likeliest` (experts per token), its last `sampled` columns replaced by sampled experts."""
        fixed_experts = likeliest[:, : self.active - self.sampled]
        # The largest sums of log-probability and Gumbel noise are samples according to the probabilities.
        noise = -(-self.noise(placed_tokens.place, log_probabilities.shape[1]).log()).log()
        noisy_scores = (log_probabilities + noise).scatter(1, fixed_experts, float("-inf"))
        return torch.cat((fixed_experts, noisy_scores.topk(self.sampled, dim=1).indices), 1)


class ExpertFeedForward(nn.Module):
    """Feed-forward experts, each W2 Drop(GELU(W1 x + b1)) + b2."""

    def __init__(
        self, width: int, mixture: FeedforwardSettings, dropout: float, gating_dropout: float
    ) -> None:
        super().__init__()
        self.router = Router(width, mixture, gating_dropout)
        self.inner = ExpertLinear(mixture.experts, width, mixture.width, bias=True)
        self.outer = ExpertLinear(mixture.experts, mixture.width, width, bias=True)
        self.inner_dropout = KeyedDropout(dropout)

    def forward(
        self, x: Float[Tensor, "M D"], placed_tokens: PlacedVectors
    ) -> tuple[Float[Tensor, "M D"], Routing]:
        """Return the outputs of the selected experts, mixed for each token, and the routing."""
        routing: Routing = self.router(x, placed_tokens)
        inner = F.gelu(self.inner(routing.dispatch(x), routing.groups))
        if self.inner_dropout.active:
            places = pair_places(placed_tokens, routing.active).flatten().index_select(0, routing.order)
            inner = self.inner_dropout(inner, places)
        return routing.mix(self.outer(inner, routing.groups)), routing


@dataclass(frozen=True)
class MixtureUse:
    """Routing of M tokens by one mixture in one layer."""

    log_probabilities: Float[Tensor, "M E"]
    chosen: Int[Tensor, "M k"]
    weight: Float[Tensor, " M"]
    """Survival probability of each token, 0 for halted tokens."""


def mutual_information_loss(routings: list[MixtureUse]) -> Float[Tensor, ""]:
    """Return H(e | x) - H(e) = -I(e; x), between -log E and 0, over all tokens x and layers of a mixture.

    Source: Tan et al., Sparse Universal Transformer, Eq. 1. It is minimised, although the text says maximised
    and the released code has the wrong sign of H(e). As in that code, a token is weighted by its survival
    probability.
    """
    total = _sum([use.weight for use in routings])
    marginal = _sum([use.weight[:, None] * use.log_probabilities.exp() for use in routings]) / total
    conditional = _sum([use.weight * _entropy(use.log_probabilities) for use in routings]) / total
    loss: Tensor = conditional - torch.special.entr(marginal).sum()
    return loss


def switch_loss(routings: list[MixtureUse]) -> Float[Tensor, ""]:
    """Return E sum_e f_e P_e: shares of choices times mean probabilities, over active tokens of all layers.

    Source: Fedus et al., Switch Transformers, Eq. 4, over the k choices of each token. The value is 1 for
    uniform use, and E if all tokens are sent to one expert.
    """
    experts = routings[0].log_probabilities.shape[1]
    numbers = torch.arange(experts, device=routings[0].chosen.device)
    probability = _sum([_active(use) * use.log_probabilities.exp() for use in routings])
    choices = _sum([_active(use) * (use.chosen[..., None] == numbers).sum(1) for use in routings])
    return experts * (choices / choices.sum() * probability / probability.sum()).sum()


def _active(routing: MixtureUse) -> Float[Tensor, "M 1"]:
    return (routing.weight > 0).to(routing.weight.dtype)[:, None]


def _sum(layers: list[Tensor]) -> Tensor:
    """Return the sum over all tokens and layers."""
    return torch.stack([layer.sum(0) for layer in layers]).sum(0)


def _entropy(log_probabilities: Float[Tensor, "M E"]) -> Float[Tensor, " M"]:
    return -(log_probabilities.exp() * log_probabilities).sum(1)
