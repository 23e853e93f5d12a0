"""Depth recurrence: what is kept of active units between layers, and of halted ones for others to attend to.

Shapes: M packed tokens in B rows, U units (the tokens, or their rows), D the width of a state, H heads of
width E.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from trainables.layers.halting import Decision, HaltingState, States, keep
from trainables.layers.host import changed, uploaded
from trainables.layers.tokens import KeysValues, Tokens
from trainables.recurrence.active_units import PER_TOKEN, PER_UNIT, ActiveUnits, Leaving, everywhere


@dataclass(frozen=True, kw_only=True)
class DepthUnits(ActiveUnits):
    """The states of M packed tokens, and the halting state of their U units."""

    tokens: Tokens
    states: Float[Tensor, "M D"] = field(metadata=PER_TOKEN)
    """h: the last kept states."""
    mixed: Float[Tensor, "M D"] = field(metadata=PER_TOKEN)
    """sum a_j h_j over the states before."""
    halting: HaltingState = field(metadata=PER_UNIT)
    halts_by: Float[Tensor, "U D"] | None = field(default=None, metadata=PER_UNIT)
    """What units halt by, where that is not their own states: the means over each row, or for each token the
    mean over its row up to that token. Not kept up for units that have halted."""
    halted_sum: Float[Tensor, "M D"] | None = field(default=None, metadata=PER_TOKEN)
    """Where halting uses means over the row so far: for each token, the sum of the final states of earlier
    tokens that left the batch; else None."""

    @classmethod
    def begin(
        cls,
        states: Float[Tensor, "M D"],
        tokens: Tokens,
        row_cap: Int[Tensor, " B"],
        *,
        per_token: bool,
        running: bool,
        delay: int = 1,
        all_keep: bool = False,
    ) -> "DepthUnits":
        """All units of a full batch; `row_cap` is the most steps the units of a row may keep.

        `running`: each token halts by the mean over its row up to itself; `tokens` must be causal.
        `all_keep`: units that halt leave the batch, so that those in it keep every step.
        """
        source, rows = everywhere(tokens.packing)
        cap = row_cap.index_select(0, tokens.packing.row) if per_token else row_cap
        halting = HaltingState.begin(cap, states.dtype, delay, alike=all_keep)
        begun = cls(
            tokens=tokens,
            per_token=per_token,
            source=source,
            origin=source if per_token else rows,
            states=states,
            mixed=torch.zeros_like(states, dtype=halting.survival.dtype),
            halting=halting,
            halted_sum=torch.zeros_like(states) if running else None,
        )
        return changed(begun, halts_by=begun.means_of(states))

    @property
    def features(self) -> Float[Tensor, "U D"]:
        """What the halting function sees of the last kept states."""
        return self.states if self.halts_by is None else self.halts_by

    def means_of(
        self, states: Float[Tensor, "M D"], *, halted_as_given: bool = False
    ) -> Float[Tensor, "U D"] | None:
        """Means of states, proposed or kept; None where tokens halt by their own.

        In means over the row so far, units that have halted count by their final states, or `halted_as_given`
        by what is given for them.
        """
        if self.halted_sum is not None:
            assert self.tokens.reach is not None
            if not halted_as_given:
                states = torch.where(self.halting.active[:, None], states, self.states)
            total = self.halted_sum + self.packing.running_sum(states)
            return total / self.tokens.reach.to(total.dtype)[:, None]
        return None if self.per_token else self.packing.mean(states)

    def at_tokens(self, value: Tensor) -> Tensor:
        """A value of each unit as a column over its tokens (M x 1)."""
        return (value if self.per_token else self.packing.spread(value))[:, None]

    def mixture(self) -> Float[Tensor, "M D"]:
        """s: the states weighted by the probability that each is the last."""
        return torch.addcmul(self.mixed, self.at_tokens(self.halting.survival), self.states)

    def counted(self) -> "DepthUnits":
        """One more step was run on every unit."""
        return changed(self, halting=self.halting.count_run())

    def step(
        self,
        states: Float[Tensor, "M D"],
        features: Float[Tensor, "U D"],
        decision: Decision,
        *,
        all_keep: bool,
        capped: bool = True,
    ) -> "DepthUnits":
        """After the step to `states`, by `features` of which units halt; those that do not keep it stay.

        `capped`: some unit may reach its cap.
        """
        halts_by = None if features is states and all_keep else features
        around = States(self.states, states, self.mixed, None if self.per_token else self.packing)
        halting, mixed, states = keep(self.halting, decision, around, all_keep=all_keep, capped=capped)
        found = changed(self, states=states, mixed=mixed, halts_by=halts_by, halting=halting)
        if self.halted_sum is not None:
            # Other tokens of the row may not have kept the step that `features` are of.
            found = changed(found, halts_by=self.means_of(states))
        return found

    def part(self, parting: Leaving) -> "tuple[DepthUnits, DepthUnits]":
        """Those that stay and those that leave; final states of the latter go into `halted_sum`."""
        if self.halted_sum is None:
            return super().part(parting)
        leaves = uploaded(~parting.tokens.known, self.states.device)
        gone = self.packing.running_sum(torch.where(leaves[:, None], self.states, 0))
        return super(DepthUnits, changed(self, halted_sum=self.halted_sum + gone)).part(parting)

    def ended(self) -> "EndedUnits":
        """What they leave behind, having halted."""
        halting = self.halting
        return EndedUnits(
            self.source, self.origin, self.mixture(), halting.ponder, halting.kept, halting.computed
        )


@dataclass(frozen=True)
class EndedUnits:
    """What M tokens of U units that have halted leave behind: as little as that takes, for it is kept."""

    source: Int[np.ndarray, " M"]
    origin: Int[np.ndarray, " U"]
    states: Float[Tensor, "M D"]
    """s: the mixture of their states."""
    ponder: Float[Tensor, " U"]
    kept: Int[Tensor, " U"] | int
    computed: int


SideOutputs = tuple[Shaped[Tensor, "M ..."], ...]
"""What a layer returns for each token beside its next state, e.g. routing probabilities."""


@dataclass(frozen=True)
class LayerOutputs:
    """The side outputs of one layer step."""

    side: SideOutputs
    weight: Float[Tensor, " M"]
    """Survival probability of each token, 0 for one that did not keep the step."""


@dataclass(frozen=True)
class DepthResult:
    """How every unit of the full batch ended."""

    states: Float[Tensor, "M D"]
    ponder: Float[Tensor, " U"]
    kept: Int[Tensor, " U"]
    computed: Int[Tensor, " U"]
    layer_outputs: list[LayerOutputs]
    """Side outputs, step by step."""


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values of whole rows; those of halted tokens stay as they were last written."""

    seen: KeysValues
    known: Int[np.ndarray, " M"]
    """Where the active tokens are among the keys, for the host."""

    @cached_property
    def slots(self) -> Int[Tensor, " M"]:
        """The same for the device."""
        return self.uploaded(self.known)

    def uploaded(self, slots: Int[np.ndarray, " K"]) -> Int[Tensor, " K"]:
        """Some slots for the device."""
        return uploaded(slots, self.seen.keys.device)

    def write(self, slots: Int[Tensor, " K"], made: KeysValues) -> "KeyValueCache":
        """Those just `made` in `slots`."""
        found = changed(self, seen=self.seen.with_rows(slots, made))
        vars(found)["slots"] = self.slots
        return found

    def of_staying(self, parting: Leaving) -> "KeyValueCache":
        """Only rows in which a token stays, and of their tokens only these as active ones."""
        known, packing, rows = self.known[parting.tokens.known], self.seen.packing, parting.rows[1]
        if rows.shape[0] == packing.num_rows:
            return KeyValueCache(self.seen, known)
        stays = np.zeros(packing.num_rows, dtype=bool)
        stays[rows] = True
        renumber = np.repeat(stays, packing.host_counts).cumsum() - 1
        return KeyValueCache(self.seen.select_rows(*parting.rows), renumber[known])
