"""Recurrent layer of the Sparse Universal Transformer, its halting, and the costs of both."""

from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.layers.attention.attend import Backend
from trainables.layers.attention.momha import AttentionSettings, ExpertAttention, ExpertSelfAttention
from trainables.layers.block_costs import FLOAT_BYTES, linear_flops
from trainables.layers.boundaries import PooledSettings
from trainables.layers.dropout import DropoutGroup, KeyedDropout
from trainables.layers.experts import (
    ExpertFeedForward,
    FeedforwardSettings,
    MixtureUse,
    mutual_information_loss,
    switch_loss,
)
from trainables.layers.linear import LayerNorm, Linear, ZeroLinear
from trainables.layers.recomputing import RecomputableLayer
from trainables.layers.tokens import KeysValues, Tokens
from trainables.layers.xpos import halved_sinusoids, sinusoids
from trainables.recurrence.active_units import EarlyExit, exit_mode
from trainables.recurrence.depth import DepthRecurrence
from trainables.recurrence.depth_units import LayerOutputs, SideOutputs
from trainables.recurrence.pass_records import start_record
from trainables.recurrence.result import RecurrenceResult
from trainables.settings import AnswerSettings, Settings, SharedDepth, Small
from trainables.types import sum_dtype


class TokenHaltSettings(Settings):
    """Stick-breaking halting of each token separately."""

    threshold: Annotated[float, Small(0.9, 0.999)] = Field(default=0.999, gt=0, le=1)
    """A token halts when the sum of its halting probabilities reaches this value (alpha_thresh)."""


class SparseSettings(PooledSettings, AnswerSettings):
    """Settings of the repeated layer of an encoder or decoder."""

    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Share of elements dropped after embedding and attention, and inside and after feed-forwards."""
    attention_dropout: float = Field(default=0.2, ge=0, lt=1)
    """Share of attention weights dropped."""
    gating_dropout: float = Field(default=0.2, ge=0, lt=1)
    """Share of elements dropped inside routers."""
    max_layers: SharedDepth = 6
    """L: maximum number of layers; the exact number if nothing halts."""
    attention: AttentionSettings = AttentionSettings()
    """Experts of all attention layers."""
    feedforward: FeedforwardSettings = FeedforwardSettings()
    """Experts of the feed-forward."""
    halt: TokenHaltSettings | None = TokenHaltSettings()
    """Halting rule; null runs all layers, removes the halting function, and takes keys and values from the
    states."""
    balance: Literal["mutual-information", "switch", "none"] = "mutual-information"
    """Auxiliary cost that distributes tokens over experts, summed over mixtures."""
    norm: Literal["post", "pre"] = "post"
    """Layer norms after each residual sum (post), or before each part and once after the last layer (pre)."""
    absolute_positions: bool = True
    """Add sinusoids to the embedded tokens; otherwise only relative positions are used."""
    position_layout: Literal["alternating", "halves"] = "alternating"
    """Layout of these sinusoids: alternating sines and cosines, counted from 0 (Vaswani et al.), or all sines
    before all cosines, counted from 2 (halves), as in fairseq, on which the released code is based."""
    kernel: Annotated[Backend, Small("auto", "math")] = "auto"
    """Attention kernel: auto, sdpa or math; flash does not support relative positions."""
    early_exit: EarlyExit = "auto"
    """Way in which halting saves computation, with equal results: halted tokens are sent to no expert
    (compact), the loop ends when all have halted (batch), or all layers are run (none). auto: compact on a
    CPU, batch on CUDA. No effect if nothing halts."""

    @model_validator(mode="after")
    def _can_be_run(self) -> "SparseSettings":
        if not self.absolute_positions and self.position_layout != "alternating":
            raise ValueError(
                "position_layout requires absolute positions, got absolute_positions=False and"
                f" position_layout={self.position_layout!r}; drop it"
            )
        if self.kernel == "flash":
            raise ValueError(
                "kernel must be auto, sdpa or math, got 'flash', which does not support relative positions;"
                " leave it at auto"
            )
        return self


class HaltingGate(RecomputableLayer):
    """Softmax of two logits, W2 GELU(W1 h + b1); the second is the halting logit. Initially p = 1/2."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = Linear(width, width)
        self.outer = ZeroLinear(width, 2)

    def forward(self, h: Float[Tensor, "M D"]) -> Float[Tensor, " M"]:
        """Return the probability of halting on each state, given that the token has not halted before."""
        logits: Tensor = self.outer(F.gelu(self.inner(h)))
        return logits.to(sum_dtype(logits.dtype)).softmax(-1)[:, 1]


class SparseLayer(RecomputableLayer):
    """Mixtures for self-attention, in a decoder for attention to the source, and for the feed-forward."""

    def __init__(self, config: SparseSettings, *, has_cross_attention: bool = False) -> None:
        super().__init__()
        sizes, rates = config.attention, (config.attention_dropout, config.gating_dropout)
        self.attention = ExpertSelfAttention(config.width, sizes, *rates, config.kernel)
        self.attention_norm = LayerNorm(config.width)
        self.attention_dropout = KeyedDropout(config.dropout, config.width)
        self.recall = (
            ExpertAttention(config.width, sizes, *rates, config.kernel) if has_cross_attention else None
        )
        self.recall_norm = LayerNorm(config.width) if has_cross_attention else None
        self.recall_dropout = KeyedDropout(config.dropout if has_cross_attention else 0.0, config.width)
        self.feedforward = ExpertFeedForward(
            config.width, config.feedforward, config.dropout, config.gating_dropout
        )
        self.feedforward_norm = LayerNorm(config.width)
        self.feedforward_dropout = KeyedDropout(config.dropout, config.width)
        self.norm_first = config.norm == "pre"
        self.dropouts = DropoutGroup(self)

    def keys_values(self, x: Float[Tensor, "M D"], tokens: Tokens) -> KeysValues:
        """Return keys and values of `tokens` with states `x`."""
        return self.attention.project_kv(self.attention_norm(x) if self.norm_first else x, tokens.packing)

    def forward(
        self, x: Float[Tensor, "M D"], tokens: Tokens, keys_values: KeysValues | None = None
    ) -> tuple[Float[Tensor, "M D"], SideOutputs]:
        """Return the next states, and log-probabilities and choices of the router of each mixture."""
        self.dropouts.draw(tokens.place)
        z = self._norm_before(x, self.attention_norm)
        if keys_values is None:
            keys_values = self.attention.project_kv(z, tokens.packing)
        z, attention_routing = self.attention(z, tokens, keys_values)
        x = self._norm_after(self.attention_dropout(z, tokens.place, x), self.attention_norm)
        routings = [attention_routing]
        if self.recall is not None:
            assert self.recall_norm is not None
            assert tokens.cross_kv is not None
            z, routing = self.recall(
                self._norm_before(x, self.recall_norm), tokens.cross_placed, tokens.cross_kv
            )
            x = self._norm_after(self.recall_dropout(z, tokens.place, x), self.recall_norm)
            routings.append(routing)
        z, feedforward_routing = self.feedforward(self._norm_before(x, self.feedforward_norm), tokens)
        x = self._norm_after(self.feedforward_dropout(z, tokens.place, x), self.feedforward_norm)
        routings.append(feedforward_routing)
        return x, tuple(part for each in routings for part in (each.log_probabilities, each.chosen))

    def _norm_before(self, x: Tensor, norm: nn.Module) -> Tensor:
        return norm(x) if self.norm_first else x

    def _norm_after(self, x: Tensor, norm: nn.Module) -> Tensor:
        return x if self.norm_first else norm(x)


def halting_gate(config: SparseSettings) -> HaltingGate | None:
    """Build the halting gate shared by all layers; None if nothing halts."""
    return None if config.halt is None else HaltingGate(config.width)


class FinalNorm(nn.Module):
    """A layer norm of final states if layers are pre-norm; otherwise the identity."""

    def __init__(self, config: SparseSettings) -> None:
        super().__init__()
        self.norm = LayerNorm(config.width) if config.norm == "pre" else None

    def forward(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
        """Return the final states for the readout."""
        return x if self.norm is None else self.norm(x)


def begin(
    config: SparseSettings, x: Float[Tensor, "M D"], position: Int[Tensor, " M"], count: int
) -> Float[Tensor, "M D"]:
    """Return the states before the first layer.

    Args:
        config: Settings of the layer.
        x: Scaled embeddings, (tokens, width).
        position: Position of each token, below `count`.
        count: Number of positions.
    """
    if not config.absolute_positions:
        return x
    table = sinusoids if config.position_layout == "alternating" else halved_sinusoids
    return x + table(count, x).index_select(0, position)


def run_to_halt(
    config: SparseSettings,
    layer: SparseLayer,
    halt: HaltingGate | None,
    states: Float[Tensor, "M D"],
    tokens: Tokens,
) -> tuple[RecurrenceResult, Float[Tensor, ""] | None]:
    """Repeat `layer` until every token has halted; return the result and the cost of expert balance."""
    recurrence = depth_recurrence(config, layer, halt)
    if recurrence is None:
        return _run_all_layers(config, layer, states, tokens)
    result = recurrence.run(states, tokens)
    kept, computed = (count.to(result.ponder.dtype) for count in (result.num_kept, result.computed))
    means = tokens.packing.mean(torch.stack((kept, result.ponder, computed), 1))
    depth, ponder, run = means.unbind(1)
    return RecurrenceResult(result.states, depth.detach(), ponder, run.detach()), _balance(
        config, result.layer_outputs
    )


def depth_recurrence(
    config: SparseSettings, layer: SparseLayer, halt: HaltingGate | None
) -> DepthRecurrence | None:
    """Build the recurrence of `layer` until every token has halted; None if nothing halts."""
    if halt is None or config.halt is None:
        return None
    return DepthRecurrence(
        layer,
        halt,
        max_layers=config.max_layers,
        threshold=config.halt.threshold,
        rule="undo",
        origin=1,
        per_token=True,
        uses_running_means=False,
        transition=False,
        sees_mixture=True,
        early_exit=exit_mode(config.early_exit, halt.outer.weight.device.type),
        length_bounds=False,
        delay=0,
    )


def _run_all_layers(
    config: SparseSettings, layer: SparseLayer, states: Tensor, tokens: Tokens
) -> tuple[RecurrenceResult, Float[Tensor, ""] | None]:
    outputs, record = [], start_record(tokens.packing, halts=False)
    for number in range(1, config.max_layers + 1):
        states, side = layer(states, tokens)
        if record is not None:
            everything = torch.arange(states.shape[0], device=states.device)
            ones = torch.ones_like(everything)
            record.record_layer(number, everything, ones.to(states.dtype), ones.bool(), side)
        outputs.append(LayerOutputs(side, torch.ones_like(side[0][:, 0])))
    return RecurrenceResult.of_all(states, tokens.packing, config.max_layers), _balance(config, outputs)


def _balance(config: SparseSettings, outputs: list[LayerOutputs]) -> Float[Tensor, ""] | None:
    """Return the cost of expert balance, summed over mixtures; None if off or for single experts."""
    if config.balance == "none":
        return None
    cost = switch_loss if config.balance == "switch" else mutual_information_loss
    uses = zip(*(_uses(step) for step in outputs), strict=True)
    losses = [cost(list(layers)) for layers in uses if layers[0].log_probabilities.shape[1] > 1]
    return torch.stack(losses).sum() if losses else None


def _uses(step: LayerOutputs) -> list[MixtureUse]:
    """Return the routing of tokens by each mixture."""
    pairs = zip(step.side[::2], step.side[1::2], strict=True)
    return [MixtureUse(probabilities, chosen, step.weight) for probabilities, chosen in pairs]


def layer_flops(config: SparseSettings, tokens: int, sources: int | None = None) -> float:
    """Return the FLOPs of one layer on one sequence.

    Keys and values of the sources are computed once for all layers and not counted here.

    Args:
        config: Sizes of the layer.
        tokens: Number of positions of the sequence.
        sources: Number of encoded positions that a decoder attends to; None for an encoder.
    """
    sizes, experts = config.attention, config.feedforward
    inner = sizes.heads * sizes.head_width
    expert_tokens = sizes.active * tokens
    query_flops = _router_flops(config, sizes.experts, tokens) + 2 * linear_flops(
        expert_tokens, config.width, inner
    )
    self_attention_flops = query_flops + 2 * linear_flops(tokens, config.width, inner)
    self_attention_flops += linear_flops(expert_tokens, inner, 2 * tokens + 2 * sizes.window + 1)
    source_attention_flops = (
        0.0 if sources is None else query_flops + 2 * linear_flops(expert_tokens, inner, sources)
    )
    feedforward_flops = 2 * linear_flops(experts.active * tokens, config.width, experts.width)
    return (
        self_attention_flops
        + source_attention_flops
        + _router_flops(config, experts.experts, tokens)
        + feedforward_flops
    )


def project_kv_flops(config: SparseSettings, sources: int) -> float:
    """Return the FLOPs of projecting `sources` vectors to keys and values for a decoder."""
    return 2 * linear_flops(sources, config.width, config.attention.heads * config.attention.head_width)


def _router_flops(config: SparseSettings, experts: int, tokens: int) -> float:
    return linear_flops(tokens, config.width, config.width + experts) if experts > 1 else 0.0


def halting_flops(config: SparseSettings, tokens: int, layers: int) -> float:
    """Return the FLOPs of all halting decisions on `tokens` positions that all run `layers` layers."""
    if config.halt is None:
        return 0.0
    # There is no decision on the embeddings. A token that halts early has also decided on its last state.
    decisions = layers - 1 + (layers < config.max_layers)
    return decisions * linear_flops(tokens, config.width, config.width + 2)


def sparse_depth_range(config: SparseSettings) -> tuple[int, int]:
    """Return the minimum and maximum number of layers run on a token; the first layer is never skipped."""
    halts = config.halt is not None and config.early_exit != "none"
    return (1 if halts else config.max_layers), config.max_layers


def states_between_layers(config: SparseSettings) -> float:
    """Return the number of states stored per layer and token if layers are recomputed.

    Each layer stores its input and the outputs of its routers. Tokens that halt also need mixture, keys and
    values.
    """
    return 2.0 if config.halt is None else 4.0


def layer_activation_bytes(
    config: SparseSettings, rows: int, tokens: int, sources: int | None = None
) -> float:
    """Return the activation bytes that one layer keeps for the backward pass.

    A position keeps its states between parts and the inputs of their norms (6 width); per mixture its
    router's layer (2 width) and probabilities (3 E); per attention and chosen expert its copy, its queries,
    the attention outputs and the expert outputs, sorted and not (2 width and 6 heads * head width); keys and
    values; attention weights, and the offset of each key in 64 bits; per chosen expert of the feed-forward
    its copy, two copies of the hidden layer, and its outputs (2 width and 2 D). One byte for each element of
    a dropout.

    Args:
        config: Sizes of the layer.
        rows: Number of sequences.
        tokens: Number of positions of each sequence.
        sources: Number of encoded positions that a decoder attends to; None for an encoder.
    """
    width, sizes, experts = config.width, config.attention, config.feedforward
    inner, active = sizes.heads * sizes.head_width, sizes.active
    attention_floats = active * (2 * width + 6 * inner) + 2 * inner
    feedforward_floats = experts.active * (2 * width + 2 * experts.width)
    router_floats = sum(
        2 * width + 3 * num_experts for num_experts in (sizes.experts, experts.experts) if num_experts > 1
    )
    weights = active * ((sizes.heads + 2) * tokens + sizes.heads * (2 * sizes.window + 1))
    floats = 6 * width + attention_floats + feedforward_floats + router_floats + weights
    if sources is not None:
        source_weights = active * sizes.heads * sources
        floats += (
            2 * width
            + attention_floats
            + source_weights
            + (2 * width + 3 * sizes.experts if sizes.experts > 1 else 0)
        )
    halting = 4 * width if config.halt is not None else 0
    masks = (3 * width + experts.active * experts.width) if config.dropout else 0
    masks += active * sizes.heads * (tokens + (sources or 0)) if config.attention_dropout else 0
    return float(rows * tokens * (FLOAT_BYTES * (floats + halting) + masks))
