"""Recurrence over depth: one layer repeated until every unit has halted, and early exit from it.

Shared by UT, GUT, SUT and their ablations. One step attends, proposes the next states, decides which units
halt, and keeps or undoes the step. Where halting does not use the next states and an undone step would be
thrown away, the decision comes first and the step is not run.

Shapes: M packed tokens in B rows, U units, D the width of a state, H heads of width E.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from trainables.layers.halting import Rule
from trainables.layers.tokens import KeysValues, Tokens
from trainables.recurrence.active_units import ExitMode
from trainables.recurrence.depth_pass import DepthPass
from trainables.recurrence.depth_units import DepthResult, DepthUnits, SideOutputs
from trainables.recurrence.watching import begun


@runtime_checkable
class RecurrentLayer(Protocol):
    """A layer whose keys and values are made apart from its queries."""

    def keys_values(self, x: Float[Tensor, "M D"], tokens: Tokens) -> KeysValues:
        """Keys and values of `tokens` with states `x`."""
        raise NotImplementedError

    def __call__(
        self, x: Float[Tensor, "M D"], tokens: Tokens, seen: KeysValues | None = None
    ) -> Float[Tensor, "M D"] | tuple[Float[Tensor, "M D"], SideOutputs]:
        """Next states, and side outputs if the layer has any; without `seen` tokens attend to each other."""
        raise NotImplementedError


@dataclass(frozen=True)
class DepthRecurrence:
    """Repetition of one layer: the layer, the halting function, and the rules by which units halt."""

    layer: RecurrentLayer
    halt: nn.Module
    """Module from features, of one state `U D` or of two, to halting probabilities `U`."""
    max_layers: int
    threshold: float
    rule: Rule
    origin: int
    per_token: bool
    running: bool
    """Each token halts by the mean over its row up to itself: global halting in a causal model."""
    transition: bool
    sees_mixture: bool
    early_exit: ExitMode
    length_bounds: bool = True
    """A unit keeps at most as many layers as its row has tokens, plus one. Not applied to causal rows, whose
    length is not known while they are written."""
    delay: int = 1
    """Layers charged for the decision to halt on a state, beyond those that computed the state."""
    halted_proposals: bool = False
    """Means over the row so far count what the layer makes of the final states of halted tokens, instead of
    these states. Not with the early exit `compact`, under which the layer is not run on them."""

    @property
    def tokens_leave(self) -> bool:
        """Whether tokens leave the batch while others of their rows stay."""
        return self.per_token and self.early_exit == "compact"

    @property
    def gives_keys(self) -> bool:
        """Whether active tokens attend to keys and values that are not those of their states alone."""
        return self.tokens_leave or self.sees_mixture

    def run(self, states: Float[Tensor, "M D"], tokens: Tokens) -> DepthResult:
        """Repeat the layer on all tokens of a batch until each unit has halted."""
        cap = torch.full_like(tokens.packing.counts, self.max_layers)
        caps = np.full(tokens.packing.num_rows, self.max_layers)
        if self.length_bounds and tokens.reach is None:
            cap = torch.minimum(cap, tokens.packing.counts + 1)
            if self.early_exit != "none":
                caps = np.minimum(caps, tokens.packing.host_counts + 1)
        units = DepthUnits.begin(
            states,
            tokens,
            cap,
            per_token=self.per_token,
            running=self.running,
            delay=self.delay,
            all_keep=self.early_exit == "compact",
        )
        run = DepthPass(self, units, caps, seen=begun(tokens.packing))
        for number in range(1, self.max_layers + 1):
            run.step(number)
            if run.over:
                break
        run.end()
        return run.result()
