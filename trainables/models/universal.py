"""Universal Transformer (UT), Gated Universal Transformer (GUT) and every ablation between them.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt: UT is Alg. 1, GUT
Alg. 3 with the gated block of Eq. 9-11 and the halting features of Eq. 12-17. One block and one halting
function are shared by all layers; nothing tells a layer its number.

Published systems as settings (what is not named is the default, which is GUT):

    GUT                     {}
    GUT - Global Halt       halt: {unit: token}
    GUT - Gate              gate: false
    GUT - Transition        halt: {transition: false}
    GUT Upperbound          early_exit: none
    GUT No Halt Upperbound  halt: null
    UT                      gate: false, pooling: mean, halt: {unit: token, transition: false}
    UT - Halt               gate: false, pooling: mean, halt: null

Where text and published runs differ we follow the runs: the sums begin at the embeddings and the step that
reaches the threshold is undone (`layers.halting` has the other readings); Eq. 13 prints the halting
probability one index too late; the last halting probability is never computed, so the ponder cost includes
the mass that is left over; taking the halting unit from sequence to token also moves keys and values from the
states to the mixture (`kv: states` isolates the first change, `kv: mixture` the second). The published cap
of padded length + 1 layers makes short inputs depend on their batch: here the cap is a sample's own length,
START and END included, plus one.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.layers.block import Block, BlockSettings
from trainables.layers.boundaries import NUM_BOUNDARIES, Boundaries, Pooling, pool
from trainables.layers.halting import Rule
from trainables.layers.linear import Linear
from trainables.layers.precision import sum_dtype
from trainables.layers.tokens import KeysValues, Tokens
from trainables.layers.work import block_flops, block_saved_bytes, linear_flops
from trainables.models._recursion import EarlyExit, Recursion
from trainables.settings import Settings
from trainables.types import Encoded


class HaltSettings(Settings):
    """Who halts, on what features, and when."""

    unit: Literal["sequence", "token"] = "sequence"
    """Whole sequences halt (global halt), or each token for itself."""
    transition: bool = True
    """Halting sees the next layer's states beside the current ones."""
    threshold: float = Field(default=0.999, gt=0, le=1)
    """A unit halts when its halting probabilities sum to this (alpha_thresh)."""
    origin: Literal[0, 1] = 0
    """First state that can be a halting result: 0, the embeddings, or 1, the first layer's."""
    rule: Rule = "undo"
    """The step that reaches the threshold is taken back (undo) or kept (prefix)."""


class Config(BlockSettings):
    """Settings of the universal family."""

    name: Literal["universal"] = "universal"
    """The model's name."""
    max_layers: int = Field(default=10, ge=1)
    """Upper bound on layers; the number of layers where nothing halts."""
    gate: bool = True
    """Mix each layer's result with its input by a learned gate."""
    gate_width: int | None = Field(default=None, ge=1)
    """Inner size of the gate's feed-forward; that of the block's if not given."""
    halt: HaltSettings | None = HaltSettings()
    """How thinking ends early; null runs all layers and removes the halting function."""
    kv: Literal["auto", "states", "mixture"] = "auto"
    """Where keys and values come from: the last states, or their halting mixture. auto: the mixture where
    tokens halt one by one, else the states."""
    pooling: Pooling = "end"
    """What represents a sequence: the state at END or START, or the mean over all."""
    early_exit: EarlyExit = "compact"
    """How halting saves work, results being equal: halted units leave the batch (compact), the loop ends when
    all have halted (batch), or all layers are run (none). Without effect when nothing halts."""

    @model_validator(mode="after")
    def _parts_exist(self) -> "Config":
        if not self.gate and self.gate_width is not None:
            raise ValueError(
                f"gate_width needs gate=True, got gate=False and gate_width={self.gate_width}; drop it"
            )
        if self.halt is None and self.kv == "mixture":
            raise ValueError("kv: mixture needs halting to mix by, got halt=None; set kv: auto or give halt")
        return self

    @property
    def size_of_gate(self) -> int | None:
        """Inner size of the gate, None without one."""
        if not self.gate:
            return None
        return self.size_of_feedforward if self.gate_width is None else self.gate_width

    @property
    def sees_mixture(self) -> bool:
        """Whether keys and values come from the halting mixture."""
        if self.kv == "auto":
            return self.halt is not None and self.halt.unit == "token"
        return self.kv == "mixture"


class HaltingProbability(nn.Module):
    """sigmoid(W2 GELU(W1 [features] + b1) + b2), on states as they are, without a norm."""

    def __init__(self, width: int, *, transition: bool) -> None:
        super().__init__()
        self.inner = Linear(2 * width if transition else width, width)
        self.outer = Linear(width, 1)

    def forward(self, features: Float[Tensor, "U F"]) -> Float[Tensor, " U"]:
        """One probability a unit."""
        logit: Tensor = self.outer(F.gelu(self.inner(features))).squeeze(-1)
        return logit.to(sum_dtype(logit.dtype)).sigmoid()


class Encoder(nn.Module):
    """Repeats one block until every unit has halted."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.boundaries = Boundaries(config.width)
        self.block = Block(config, config.size_of_gate)
        halt = config.halt
        self.halt = None if halt is None else HaltingProbability(config.width, transition=halt.transition)

    def forward(self, x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"]) -> Encoded:
        """Encode right-padded `x`."""
        states, packing = self.boundaries(x, mask)
        tokens = Tokens.of(packing, self.config.size_of_head, states.dtype)
        if self.halt is None:
            final = self._repeat(states, tokens)
            depth = states.new_full((packing.num_rows,), self.config.max_layers)
            ponder, computed = torch.zeros_like(depth), depth
        else:
            final, depth, ponder, computed = self._think(states, tokens, self.halt)
        return Encoded(
            states=self.boundaries.padded(final, packing, x),
            pooled=pool(final, packing, self.config.pooling),
            depth=depth,
            ponder=ponder,
            computed=computed,
            bound=torch.full_like(depth, self.config.max_layers),
        )

    def _repeat(self, states: Tensor, tokens: Tokens) -> Tensor:
        for _ in range(self.config.max_layers):
            seen = KeysValues(*self.block.keys_values(states, tokens.key_rotation), tokens.packing)
            states = self.block(states, tokens, seen)
        return states

    def _think(
        self, states: Tensor, tokens: Tokens, halt: HaltingProbability
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        assert self.config.halt is not None
        recursion = Recursion(
            self.block,
            halt,
            max_layers=self.config.max_layers,
            threshold=self.config.halt.threshold,
            rule=self.config.halt.rule,
            origin=self.config.halt.origin,
            per_token=self.config.halt.unit == "token",
            transition=self.config.halt.transition,
            sees_mixture=self.config.sees_mixture,
            early_exit=self.config.early_exit,
        )
        result = recursion.run(states, tokens)
        kept, computed = (count.to(result.ponder.dtype) for count in (result.kept, result.computed))
        if not recursion.per_token:
            return result.states, kept, result.ponder, computed
        depth, ponder, run = tokens.packing.mean(torch.stack((kept, result.ponder, computed), 1)).unbind(1)
        return result.states, depth.detach(), ponder, run.detach()


def depth_range(config: Config, length: int) -> tuple[int, int]:  # noqa: ARG001 the same for all lengths
    """Least and greatest number of layers run on a sequence, a step that is undone included."""
    halt = config.halt
    if halt is None or config.early_exit == "none":
        return config.max_layers, config.max_layers
    # Before origin nothing can halt; a decision that needs the next layer, or keeps it, has run it.
    least = halt.origin + (1 if halt.transition or halt.rule == "prefix" else 0)
    return min(least, config.max_layers), config.max_layers


def forward_flops(config: Config, length: int, layers: int) -> float:
    """Encoder FLOPs of one sequence of `length` tokens on which `layers` layers are run."""
    tokens = length + NUM_BOUNDARIES
    work = layers * block_flops(config, config.size_of_gate, tokens)
    halt = config.halt
    if halt is None:
        return work
    first = not halt.transition and halt.rule == "undo" and layers < config.max_layers
    decisions = max(0, layers + first - halt.origin)
    units = tokens if halt.unit == "token" else 1
    features = (2 if halt.transition else 1) * config.width
    once = linear_flops(units, features, config.width) + linear_flops(units, config.width, 1)
    return work + decisions * once


def saved_bytes(config: Config, rows: int, length: int) -> float:
    """What a forward pass on `rows` sequences of `length` tokens keeps when nothing halts early."""
    tokens = length + NUM_BOUNDARIES
    layer = block_saved_bytes(config, config.size_of_gate, rows, tokens)
    if config.halt is not None and config.halt.unit == "token":
        # Features, hidden layer before and after its GELU, and the mixture, for every token.
        layer += 4 * rows * tokens * config.width * (4 + config.halt.transition)
    return config.max_layers * layer
