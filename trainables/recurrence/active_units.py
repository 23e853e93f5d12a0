"""Units that have not halted: their states, their halting state, and how the others leave the batch.

A unit is what halts as one: a token, or a whole row (sequence). `ActiveUnits` holds what is still in the
batch, `HaltedResults` the results of units that left it. Early exit needs nothing but selection, because the
numbers of a unit never depend on which other units are in the batch.

Shapes: M packed tokens in B rows, U units (M or B), D the width of a state.
"""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from trainables.layers.halting import Decision, HaltingState, keep
from trainables.layers.packing import Packing, put, take
from trainables.layers.tokens import KeysValues, Tokens


@dataclass(frozen=True)
class Selection:
    """Some units of a batch, as indices of everything that is selected with them."""

    units: Int[Tensor, " U"]
    tokens: Int[Tensor, " M"]
    rows: Int[Tensor, " B"]
    packing: Packing


@dataclass(frozen=True)
class ActiveUnits:
    """The states of M packed tokens, and the halting state of their U units (the tokens, or their rows)."""

    per_token: bool
    states: Float[Tensor, "M D"]
    """h: the last kept states."""
    mixed: Float[Tensor, "M D"]
    """sum a_j h_j over the states before."""
    summary: Float[Tensor, "U D"]
    """Features of the halting decision: the states themselves, their means over each row, or for each token
    the mean over its row up to that token."""
    halting: HaltingState
    tokens: Tokens
    source: Int[Tensor, " M"]
    """Where each token was in the full batch."""
    origin: Int[Tensor, " U"]
    """Where each unit was in the full batch."""
    halted_sum: Float[Tensor, "M D"] | None = None
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
    ) -> "ActiveUnits":
        """All units of a full batch; `row_cap` is the most steps the units of a row may keep.

        `running`: each token halts by the mean over its row up to itself; `tokens` must be causal.
        """
        packing = tokens.packing
        cap = row_cap.index_select(0, packing.row) if per_token else row_cap
        halting = HaltingState.begin(cap, states.dtype, delay)
        mixed = torch.zeros_like(states, dtype=halting.survival.dtype)
        source = torch.arange(states.shape[0], device=states.device)
        origin = torch.arange(cap.shape[0], device=states.device)
        halted_sum = torch.zeros_like(states) if running else None
        summary = states if per_token else packing.mean(states)
        begun = cls(per_token, states, mixed, summary, halting, tokens, source, origin, halted_sum)
        return replace(begun, summary=begun.summarise(states)) if running else begun

    def summarise(self, states: Float[Tensor, "M D"]) -> Float[Tensor, "U D"]:
        """Halting features of `states`, proposed or kept; states of units that have halted do not change."""
        if self.halted_sum is not None:
            assert self.tokens.reach is not None
            states = torch.where(self.halting.active[:, None], states, self.states)
            total = self.halted_sum + self.tokens.packing.running_sum(states)
            return total / self.tokens.reach.to(total.dtype)[:, None]
        return states if self.per_token else self.tokens.packing.mean(states)

    def at_tokens(self, value: Tensor) -> Tensor:
        """A value of each unit as a column over its tokens (M x 1)."""
        return (value if self.per_token else self.tokens.packing.spread(value))[:, None]

    def mixture(self) -> Float[Tensor, "M D"]:
        """s: the states weighted by the probability that each is the last."""
        return self.mixed + self.at_tokens(self.halting.survival) * self.states

    def counted(self) -> "ActiveUnits":
        """One more step was run on every unit."""
        return replace(self, halting=self.halting.count_run())

    def step(
        self,
        states: Float[Tensor, "M D"],
        summary: Float[Tensor, "U D"],
        decision: Decision,
        *,
        all_keep: bool,
    ) -> "ActiveUnits":
        """After the step to `states`; units that do not keep the step stay unchanged."""
        mixed = self.mixed + self.at_tokens(decision.weight) * self.states
        if not all_keep:
            keeps = self.at_tokens(decision.keeps)
            mixed = torch.where(keeps, mixed, self.mixed)
            states = torch.where(keeps, states, self.states)
        if self.halted_sum is not None:
            # Other tokens of the row may not have kept the step that was summarised.
            summary = self.summarise(states)
        halting = keep(self.halting, decision)
        return replace(self, states=states, mixed=mixed, summary=summary, halting=halting)

    def pick(self, units: Bool[Tensor, " U"]) -> Selection:
        """Everything that belongs to `units`."""
        packing = self.tokens.packing
        tokens, rows, packed = packing.select(units if self.per_token else units.index_select(0, packing.row))
        return Selection(tokens if self.per_token else rows, tokens, rows, packed)

    def select(self, picked: Selection) -> "ActiveUnits":
        """Only the units in `picked`."""
        states = take(self.states, picked.tokens)
        itself = self.per_token and self.halted_sum is None
        return ActiveUnits(
            self.per_token,
            states,
            take(self.mixed, picked.tokens),
            states if itself else take(self.summary, picked.units),
            self.halting.select(picked.units),
            self.tokens.select(picked.tokens, picked.rows, picked.packing),
            self.source.index_select(0, picked.tokens),
            self.origin.index_select(0, picked.units),
            None if self.halted_sum is None else take(self._halted_sum(picked), picked.tokens),
        )

    def _halted_sum(self, picked: Selection) -> Float[Tensor, "M D"]:
        """`halted_sum` at every token, once all tokens but those in `picked` have left."""
        assert self.halted_sum is not None
        leaves = torch.ones_like(self.source, dtype=torch.bool)
        leaves[picked.tokens] = False
        gone = torch.where(leaves[:, None], self.states, 0)
        return self.halted_sum + self.tokens.packing.running_sum(gone)


SideOutputs = tuple[Shaped[Tensor, "M ..."], ...]
"""What a layer returns for each token beside its next state, e.g. routing probabilities."""


@dataclass(frozen=True)
class LayerOutputs:
    """The side outputs of one layer step."""

    side: SideOutputs
    weight: Float[Tensor, " M"]
    """Survival probability of each token, 0 for one that did not keep the step."""


@dataclass(frozen=True)
class UnitResults:
    """How every unit of the full batch ended."""

    states: Float[Tensor, "M D"]
    ponder: Float[Tensor, " U"]
    kept: Int[Tensor, " U"]
    computed: Int[Tensor, " U"]
    layer_outputs: list[LayerOutputs] = field(default_factory=list)
    """Side outputs, step by step."""


@dataclass
class HaltedResults:
    """Results of units that left the batch, in the order in which they left."""

    left: list[ActiveUnits] = field(default_factory=list)

    def add(self, units: ActiveUnits) -> None:
        """Add units that will not change any more."""
        self.left.append(units)

    def gather(self) -> UnitResults:
        """All results in the order of the full batch."""
        source = torch.cat([part.source for part in self.left])
        origin = torch.cat([part.origin for part in self.left])
        states = torch.cat([part.mixture() for part in self.left])
        ponder = torch.cat([part.halting.ponder for part in self.left])
        kept = torch.cat([part.halting.kept for part in self.left])
        computed = torch.cat([part.halting.computed for part in self.left])
        back = torch.argsort(origin)
        return UnitResults(
            put(states, source, source.shape[0]), take(ponder, back), kept[back], computed[back]
        )


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values of whole rows; those of halted tokens stay as they were last written."""

    seen: KeysValues
    slots: Int[Tensor, " M"]
    """Where the active tokens are among the keys."""

    def write(
        self, slots: Int[Tensor, " K"], keys: Float[Tensor, "K H E"], values: Float[Tensor, "K H E"]
    ) -> "KeyValueCache":
        """New keys and values in `slots`."""
        return replace(
            self,
            seen=KeysValues(
                self.seen.keys.index_copy(0, slots, keys),
                self.seen.values.index_copy(0, slots, values),
                self.seen.packing,
            ),
        )

    def select(self, picked: Selection) -> "KeyValueCache":
        """Only the rows in `picked`, and of their tokens only the active ones."""
        slots = self.slots.index_select(0, picked.tokens)
        packing = self.seen.packing
        if picked.rows.shape[0] == packing.num_rows:
            return replace(self, slots=slots)
        stays = torch.zeros_like(packing.counts, dtype=torch.bool)
        stays[picked.rows] = True
        renumber = stays.index_select(0, packing.row).cumsum(0) - 1
        return KeyValueCache(self.seen.select_rows(picked.rows), renumber.index_select(0, slots))
