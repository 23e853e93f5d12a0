"""Depth recurrence: state of active units between layers, and cached keys and values of halted units.

Shapes: M packed tokens in B rows, U units (the tokens, or their rows), D the width of a state, H heads of
width E.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from trainables.layers.halting import Decision, HaltingState, States, keep
from trainables.layers.host import upload
from trainables.layers.tokens import KeysValues, Tokens
from trainables.recurrence.active_units import (
    PER_TOKEN,
    PER_UNIT,
    TOKENS,
    ActiveUnits,
    Selection,
    full_batch_indices,
)


@dataclass(frozen=True, kw_only=True)
class DepthUnits(ActiveUnits):
    """States of M packed tokens, and halting state of their U units."""

    tokens: Tokens
    states: Float[Tensor, "M D"] = field(metadata=PER_TOKEN)
    """h: the last kept states."""
    mixed: Float[Tensor, "M D"] = field(metadata=PER_TOKEN)
    """sum a_j h_j over the earlier states."""
    halting: HaltingState = field(metadata=PER_UNIT)
    halting_features: Float[Tensor, "U D"] | None = field(default=None, metadata=PER_UNIT)
    """Features that determine halting, if they are not the states of the units: the means over each row, or
    for each token the mean over its row up to that token. Not updated for halted units."""
    halted_sum: Float[Tensor, "M D"] | None = field(default=None, metadata=PER_TOKEN)
    """If halting uses means over the row so far: for each token, the sum of the final states of earlier
    tokens that were removed from the batch. Otherwise None."""

    @classmethod
    def begin(
        cls,
        states: Float[Tensor, "M D"],
        tokens: Tokens,
        row_cap: Int[Tensor, " B"],
        *,
        per_token: bool,
        uses_running_means: bool,
        delay: int = 1,
    ) -> "DepthUnits":
        """Build the state of all units of a full batch before the first step.

        Args:
            states: Initial states, (tokens, width).
            tokens: Packing and places of the tokens.
            row_cap: Maximum number of steps that the units of each row may keep.
            per_token: Whether units are tokens; otherwise they are rows.
            uses_running_means: Whether each token halts by the mean over its row so far; needs causal rows.
            delay: Layers charged for each halting decision.
        """
        source, rows = full_batch_indices(tokens.packing)
        cap = row_cap.index_select(0, tokens.packing.row) if per_token else row_cap
        halting = HaltingState.begin(cap, states.dtype, delay)
        units = cls(
            tokens=tokens,
            per_token=per_token,
            batch_token=source,
            batch_unit=source if per_token else rows,
            states=states,
            mixed=torch.zeros_like(states, dtype=halting.survival.dtype),
            halting=halting,
            halted_sum=torch.zeros_like(states) if uses_running_means else None,
        )
        return replace(units, halting_features=units.means_of(states))

    @property
    def features(self) -> Float[Tensor, "U D"]:
        """Input of the halting function from the last kept states, (units, width)."""
        return self.states if self.halting_features is None else self.halting_features

    def means_of(
        self, states: Float[Tensor, "M D"], *, halted_as_given: bool = False
    ) -> Float[Tensor, "U D"] | None:
        """Return the means that decide halting, of proposed or kept `states`; None if tokens halt separately.

        In means over the row so far, halted units count with their final states, or with their entries in
        `states` if `halted_as_given`.
        """
        if self.halted_sum is not None:
            assert self.tokens.num_visible is not None
            if not halted_as_given:
                states = torch.where(self.halting.active[:, None], states, self.states)
            total = self.halted_sum + self.packing.running_sum(states)
            return total / self.tokens.num_visible.to(total.dtype)[:, None]
        return None if self.per_token else self.packing.mean(states)

    def at_tokens(self, value: Tensor) -> Tensor:
        """Repeat the value of each unit for all its tokens, as a column (tokens, 1)."""
        return (value if self.per_token else self.packing.repeat_per_token(value))[:, None]

    def mixture(self) -> Float[Tensor, "M D"]:
        """Return s: the sum of a token's states, weighted by their probabilities to be the last."""
        return torch.addcmul(self.mixed, self.at_tokens(self.halting.survival), self.states)

    def count_step(self) -> "DepthUnits":
        """Return a copy in which every unit has run one more step."""
        return replace(self, halting=self.halting.count_run())

    def step(
        self,
        states: Float[Tensor, "M D"],
        features: Float[Tensor, "U D"],
        decision: Decision,
    ) -> "DepthUnits":
        """Return the units after a step; units that undo the step remain in the batch.

        Args:
            states: States after the step, (tokens, width).
            features: Features of these states that determine halting, (units, width).
            decision: Outcome of the halting decision.
        """
        halting_features = None if features is states else features
        states_around_step = States(self.states, states, self.mixed, None if self.per_token else self.packing)
        halting, mixed, states = keep(self.halting, decision, states_around_step)
        updated = replace(
            self, states=states, mixed=mixed, halting_features=halting_features, halting=halting
        )
        if self.halted_sum is not None:
            # Other tokens of the row may not have kept the step of `features`.
            updated = replace(updated, halting_features=self.means_of(states))
        return updated

    def with_halted(self, halting_tokens: Bool[np.ndarray, " M"]) -> "DepthUnits":
        """Return a copy in which `halted_sum` includes the final states of the tokens in `halting_tokens`."""
        if self.halted_sum is None:
            return self
        is_leaving = upload(halting_tokens, self.states.device)
        halted_sums = self.packing.running_sum(torch.where(is_leaving[:, None], self.states, 0))
        return replace(self, halted_sum=self.halted_sum + halted_sums)

    def results(self) -> "HaltedUnits":
        """Return the results of these units after they have halted."""
        halting = self.halting
        computed = torch.full_like(halting.num_kept, halting.computed)
        return HaltedUnits(
            self.batch_token, self.batch_unit, self.mixture(), halting.ponder, halting.num_kept, computed
        )


@dataclass(frozen=True)
class HaltedUnits:
    """Results of M tokens of U halted units, with as little memory as possible."""

    batch_token: Int[np.ndarray, " M"]
    batch_unit: Int[np.ndarray, " U"]
    states: Float[Tensor, "M D"]
    """s: the mixture of their states."""
    ponder: Float[Tensor, " U"]
    num_kept: Int[Tensor, " U"]
    computed: Int[Tensor, " U"]


SideOutputs = tuple[Shaped[Tensor, "M ..."], ...]
"""Outputs of a layer for each token in addition to its next state, e.g. routing probabilities."""


@dataclass(frozen=True)
class LayerOutputs:
    """Side outputs of one layer step."""

    side: SideOutputs
    weight: Float[Tensor, " M"]
    """Survival probability of each token, 0 for tokens that did not keep the step."""


@dataclass(frozen=True)
class DepthResult:
    """Final states, costs and steps of every unit of the full batch."""

    states: Float[Tensor, "M D"]
    ponder: Float[Tensor, " U"]
    num_kept: Int[Tensor, " U"]
    computed: Int[Tensor, " U"]
    layer_outputs: list[LayerOutputs]
    """Side outputs of each step."""


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values of full rows; the entries of halted tokens are no longer updated."""

    keys_values: KeysValues
    active_indices: Int[np.ndarray, " M"]
    """Indices of the active tokens among the keys, on the host."""

    def write(self, slots: Int[np.ndarray, " K"], new_keys_values: KeysValues) -> "KeyValueCache":
        """Return the cache with new keys and values in `slots`, indices of keys."""
        places = upload(slots, self.keys_values.both.device)
        return replace(self, keys_values=self.keys_values.with_rows(places, new_keys_values))

    def of_active(self, selection: Selection) -> "KeyValueCache":
        """Return the cache of the rows with remaining tokens, with only these tokens as active ones."""
        host_numbers, packing = self.active_indices[selection.host_masks[TOKENS]], self.keys_values.packing
        is_staying = np.repeat(np.isin(np.arange(packing.num_rows), selection.rows), packing.host_counts)
        return KeyValueCache(
            self.keys_values.select_rows(selection.rows), (is_staying.cumsum() - 1)[host_numbers]
        )
