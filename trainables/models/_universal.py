"""Settings, halting function and costs shared by Universal Transformers over a sequence or over chunks."""

from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from trainables.layers.block import Block, BlockSettings
from trainables.layers.block_costs import linear_flops
from trainables.layers.halting import Rule
from trainables.layers.linear import Linear
from trainables.layers.recomputing import RecomputableLayer
from trainables.layers.tokens import Tokens
from trainables.recurrence.active_units import EarlyExit, exit_mode
from trainables.recurrence.depth import DepthRecurrence
from trainables.recurrence.result import RecurrenceResult
from trainables.settings import CausalSettings, Settings, SharedDepth, Small
from trainables.types import sum_dtype


class HaltSettings(Settings):
    """Halting units, their features, and the halting rule."""

    unit: Literal["sequence", "token"] = "sequence"
    """Complete sequences halt (global halt), or each token halts separately."""
    transition: bool = True
    """Transition features: the halting function reads the next layer's states in addition to the current
    ones."""
    threshold: Annotated[float, Small(0.9, 0.999)] = Field(default=0.999, gt=0, le=1)
    """A unit halts when the sum of its halting probabilities reaches this value (alpha_thresh)."""
    origin: Literal[0, 1] = 0
    """First state on which a unit can halt: 0, the embeddings, or 1, the state after the first layer."""
    rule: Rule = "undo"
    """The step that reaches the threshold is undone (undo) or kept (prefix)."""
    halted_proposals: bool = False
    """For causal global halt on transition features: at halted positions, the mean over the next layer's
    states uses the layer's output for the final states, as in the published runs, instead of the final
    states. These positions are still run, so `early_exit` must not be compact. No effect otherwise."""


class UniversalSettings(BlockSettings, CausalSettings):
    """Settings of a block shared by all layers, with or without a gate, and of its repetition."""

    max_layers: SharedDepth = 10
    """Maximum number of layers; the exact number if nothing halts."""
    gate: bool = True
    """Mix each layer's result with its input by a learned gate."""
    gate_width: Annotated[int | None, Small(None, 7)] = Field(default=None, ge=1)
    """Inner size of the gate's feed-forward; that of the block's feed-forward if not given."""
    halt: HaltSettings | None = HaltSettings()
    """Halting rule; null runs all layers and removes the halting function."""
    kv: Literal["auto", "states", "mixture"] = "auto"
    """Source of keys and values: the last states, or their halting mixture. auto: the mixture if `halt.unit`
    is token, else the states."""
    early_exit: EarlyExit = "auto"
    """Way in which halting saves computation, with equal results: halted units are removed from the batch
    (compact), the loop ends when all have halted (batch), or all layers are run (none). auto: compact on a
    CPU, batch on CUDA and with `halt.halted_proposals`. No effect if nothing halts."""

    @model_validator(mode="after")
    def _parts_exist(self) -> "UniversalSettings":
        if not self.gate and self.gate_width is not None:
            raise ValueError(
                f"gate_width needs gate=True, got gate=False and gate_width={self.gate_width}; drop it"
            )
        if self.halt is not None and self.halt.halted_proposals and self.early_exit == "compact":
            raise ValueError(
                "early_exit must not be compact if halted positions are still computed, got"
                " early_exit='compact' and halt.halted_proposals=True; set early_exit: auto"
            )
        if self.halt is None and self.kv == "mixture":
            raise ValueError(
                "kv: mixture needs halting probabilities, got halt=None; set kv: auto or give halt"
            )
        return self

    @property
    def early_exit_setting(self) -> EarlyExit:
        """The setting `early_exit`; `auto` is replaced by the possible mode if there is only one."""
        return "batch" if self.runs_halted and self.early_exit == "auto" else self.early_exit

    @property
    def runs_halted(self) -> bool:
        """True if layers still run at halted positions, because later tokens read their outputs."""
        return (
            self.halt is not None
            and self.halt.halted_proposals
            and self.halt.transition
            and self.uses_running_means
        )

    @property
    def size_of_gate(self) -> int | None:
        """Width of the hidden layer of the gate; None if blocks have no gate."""
        if not self.gate:
            return None
        return self.size_of_feedforward if self.gate_width is None else self.gate_width

    @property
    def sees_mixture(self) -> bool:
        """Whether keys and values are computed from the halting mixture instead of the states."""
        if self.kv == "auto":
            return self.halt is not None and self.halt.unit == "token"
        return self.kv == "mixture"

    @property
    def halts_per_token(self) -> bool:
        """Whether each token has its own halting state; a causal sequence cannot halt as a unit."""
        return self.halt is not None and (self.halt.unit == "token" or self.causal)

    @property
    def uses_running_means(self) -> bool:
        """Whether the halting of a token depends on the mean state of the sequence up to it."""
        return self.halt is not None and self.halt.unit == "sequence" and self.causal


class HaltingProbability(RecomputableLayer):
    """Halting probability sigmoid(W2 GELU(W1 features + b1) + b2), with features from unnormed states."""

    def __init__(self, width: int, *, transition: bool) -> None:
        super().__init__()
        self.inner = Linear(2 * width if transition else width, width)
        self.outer = Linear(width, 1)

    def forward(self, *features: Float[Tensor, "U D"]) -> Float[Tensor, " U"]:
        """Return one probability per unit, given its features."""
        gate_input = features[0] if len(features) == 1 else torch.cat(features, -1)
        logit: Tensor = self.outer(F.gelu(self.inner(gate_input))).squeeze(-1)
        return logit.to(sum_dtype(logit.dtype)).sigmoid()


def halting_function(config: UniversalSettings) -> HaltingProbability | None:
    """Build the halting function shared by all layers; None if nothing halts."""
    halt = config.halt
    return None if halt is None else HaltingProbability(config.width, transition=halt.transition)


def run_all(
    config: UniversalSettings, block: Block, states: Float[Tensor, "M D"], tokens: Tokens
) -> Float[Tensor, "M D"]:
    """Repeat `block` for all layers without halting."""
    for _ in range(config.max_layers):
        states = block(states, tokens)
    return states


def run_to_halt(
    config: UniversalSettings,
    block: Block,
    halt: HaltingProbability | None,
    states: Float[Tensor, "M D"],
    tokens: Tokens,
) -> RecurrenceResult:
    """Repeat `block` on all tokens until every unit has halted.

    Args:
        config: Settings of the model.
        block: Block that is repeated.
        halt: Halting function; None: all layers are run.
        states: Initial states, (tokens, width).
        tokens: Packing, rotations and range of the tokens.
    """
    recurrence = depth_recurrence(config, block, halt)
    if recurrence is None:
        states = run_all(config, block, states, tokens)
        return RecurrenceResult.of_all(states, tokens.packing, config.max_layers)
    result = recurrence.run(states, tokens)
    num_kept, num_computed = (count.to(result.ponder.dtype) for count in (result.num_kept, result.computed))
    if not config.halts_per_token:
        return RecurrenceResult(result.states, num_kept, result.ponder, num_computed)
    depth, ponder, run = tokens.packing.mean(torch.stack((num_kept, result.ponder, num_computed), 1)).unbind(
        1
    )
    return RecurrenceResult(result.states, depth.detach(), ponder, run.detach())


def depth_recurrence(
    config: UniversalSettings, block: Block, halt: HaltingProbability | None
) -> DepthRecurrence | None:
    """Build the recurrence of `block` until all units have halted; None if nothing halts."""
    if halt is None or config.halt is None:
        return None
    return DepthRecurrence(
        block,
        halt,
        max_layers=config.max_layers,
        threshold=config.halt.threshold,
        rule=config.halt.rule,
        origin=config.halt.origin,
        per_token=config.halts_per_token,
        uses_running_means=config.uses_running_means,
        transition=config.halt.transition,
        sees_mixture=config.sees_mixture,
        early_exit=exit_mode(config.early_exit_setting, halt.outer.weight.device.type),
        halted_proposals=config.runs_halted,
    )


def recurrent_depth_range(config: UniversalSettings) -> tuple[int, int]:
    """Return the minimum and maximum number of layers run on a sequence, including an undone step."""
    halt = config.halt
    if halt is None or config.early_exit == "none":
        return config.max_layers, config.max_layers
    # No unit halts before `origin`. One more layer has run if a decision needs the next layer or keeps it.
    fewest_layers = halt.origin + (1 if halt.transition or halt.rule == "prefix" else 0)
    return min(fewest_layers, config.max_layers), config.max_layers


def most_recurrent_layers(config: UniversalSettings, tokens: int) -> int:
    """Return the maximum number of layers run on `tokens` tokens, START and END included.

    Causal models have no bound by length, because the final length is unknown.
    """
    return config.max_layers if config.causal else min(config.max_layers, tokens + 1)


def states_between_layers(config: UniversalSettings) -> float:
    """Return the number of states stored per layer and token if layers are recomputed.

    Each layer stores its input. Tokens that halt separately also need the mixture, keys, values and next
    states.
    """
    return 6.0 if config.halts_per_token else 1.0


def halting_flops(config: UniversalSettings, tokens: int, layers: int) -> float:
    """Return the FLOPs of all halting decisions on `tokens` positions with `layers` layers run."""
    halt = config.halt
    if halt is None:
        return 0.0
    is_first_free = not halt.transition and halt.rule == "undo" and layers < config.max_layers
    decisions = max(0, layers + is_first_free - halt.origin)
    units = tokens if config.halts_per_token else 1
    features = (2 if halt.transition else 1) * config.width
    flops_per_step = linear_flops(units, features, config.width) + linear_flops(units, config.width, 1)
    return decisions * flops_per_step


def halting_activation_bytes(config: UniversalSettings, rows: int, tokens: int) -> float:
    """Return the activation bytes that the halting decision of one layer keeps for the backward pass."""
    if config.halt is None or not config.halts_per_token:
        return 0.0
    # For every token: features, hidden layer before and after its GELU, and mixture.
    return 4.0 * rows * tokens * config.width * (4 + config.halt.transition)
