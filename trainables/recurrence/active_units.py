"""Units in thought: their states, their books, and how those that halted leave the batch.

`Thoughts` holds what is still in the batch, `Harvest` the results of what left. Selection is all that early
exit needs: a unit's numbers never depend on who else is in the batch.
"""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from trainables.layers.halting import Decision, Halting, keep
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
class Thoughts:
    """M packed tokens whose U units (the tokens themselves, or their rows) halt by the same books."""

    per_token: bool
    states: Float[Tensor, "M D"]
    """h: the last kept states."""
    mixed: Float[Tensor, "M D"]
    """sum a_j h_j over the states before."""
    summary: Float[Tensor, "U D"]
    """What halting looks at: the states themselves, or their means over each row, or at each token the mean
    over its row so far."""
    books: Halting
    tokens: Tokens
    source: Int[Tensor, " M"]
    """Where each token was in the full batch."""
    origin: Int[Tensor, " U"]
    """Where each unit was in the full batch."""
    behind: Float[Tensor, "M D"] | None = None
    """For means over rows so far: the sum of the final states of earlier tokens that left; else None."""

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
    ) -> "Thoughts":
        """All units of a full batch; `row_cap` is the most steps the units of a row may keep.

        `running`: tokens halt by the mean over their row so far, which needs `tokens` to be causal.
        """
        packing = tokens.packing
        cap = row_cap.index_select(0, packing.row) if per_token else row_cap
        books = Halting.begin(cap, states.dtype, delay)
        mixed = torch.zeros_like(states, dtype=books.survival.dtype)
        source = torch.arange(states.shape[0], device=states.device)
        origin = torch.arange(cap.shape[0], device=states.device)
        behind = torch.zeros_like(states) if running else None
        summary = states if per_token else packing.mean(states)
        begun = cls(per_token, states, mixed, summary, books, tokens, source, origin, behind)
        return replace(begun, summary=begun.summarise(states)) if running else begun

    def summarise(self, states: Float[Tensor, "M D"]) -> Float[Tensor, "U D"]:
        """What halting looks at of `states`, proposed or kept, if who halted stays as it is."""
        if self.behind is not None:
            assert self.tokens.reach is not None
            states = torch.where(self.books.active[:, None], states, self.states)
            total = self.behind + self.tokens.packing.running_sum(states)
            return total / self.tokens.reach.to(total.dtype)[:, None]
        return states if self.per_token else self.tokens.packing.mean(states)

    def at_tokens(self, value: Tensor) -> Tensor:
        """A unit's value as a column over its tokens."""
        return (value if self.per_token else self.tokens.packing.spread(value))[:, None]

    def mixture(self) -> Float[Tensor, "M D"]:
        """s: the states weighted by the probability that each is the last."""
        return self.mixed + self.at_tokens(self.books.survival) * self.states

    def counted(self) -> "Thoughts":
        """One more step was run on every unit."""
        return replace(self, books=self.books.count_run())

    def step(
        self,
        states: Float[Tensor, "M D"],
        summary: Float[Tensor, "U D"],
        decision: Decision,
        *,
        all_keep: bool,
    ) -> "Thoughts":
        """After the step to `states`; units that do not keep it stay as they are."""
        mixed = self.mixed + self.at_tokens(decision.weight) * self.states
        if not all_keep:
            keeps = self.at_tokens(decision.keeps)
            mixed = torch.where(keeps, mixed, self.mixed)
            states = torch.where(keeps, states, self.states)
        if self.behind is not None:
            # Others of the row may not have kept the step that was summarised.
            summary = self.summarise(states)
        books = keep(self.books, decision)
        return replace(self, states=states, mixed=mixed, summary=summary, books=books)

    def pick(self, units: Bool[Tensor, " U"]) -> Selection:
        """Everything that belongs to `units`."""
        packing = self.tokens.packing
        tokens, rows, packed = packing.select(units if self.per_token else units.index_select(0, packing.row))
        return Selection(tokens if self.per_token else rows, tokens, rows, packed)

    def select(self, picked: Selection) -> "Thoughts":
        """Only the units in `picked`."""
        states = take(self.states, picked.tokens)
        itself = self.per_token and self.behind is None
        return Thoughts(
            self.per_token,
            states,
            take(self.mixed, picked.tokens),
            states if itself else take(self.summary, picked.units),
            self.books.select(picked.units),
            self.tokens.select(picked.tokens, picked.rows, picked.packing),
            self.source.index_select(0, picked.tokens),
            self.origin.index_select(0, picked.units),
            None if self.behind is None else take(self._left_behind(picked), picked.tokens),
        )

    def _left_behind(self, picked: Selection) -> Float[Tensor, "M D"]:
        """`behind` at every token, once all but those in `picked` have left."""
        assert self.behind is not None
        leaves = torch.ones_like(self.source, dtype=torch.bool)
        leaves[picked.tokens] = False
        gone = torch.where(leaves[:, None], self.states, 0)
        return self.behind + self.tokens.packing.running_sum(gone)


Notes = tuple[Shaped[Tensor, "M ..."], ...]
"""What a layer tells of each of its tokens beside their next states."""


@dataclass(frozen=True)
class Told:
    """The notes of one step."""

    notes: Notes
    weight: Float[Tensor, " M"]
    """How much each token counts: the probability that it thinks on, 0 if it did not keep the step."""


@dataclass(frozen=True)
class Result:
    """How every unit of the full batch ended."""

    states: Float[Tensor, "M D"]
    ponder: Float[Tensor, " U"]
    kept: Int[Tensor, " U"]
    computed: Int[Tensor, " U"]
    told: list["Told"] = field(default_factory=list)
    """What was told on the way, step by step."""


@dataclass
class Harvest:
    """Results in the order in which units left."""

    left: list[Thoughts] = field(default_factory=list)

    def add(self, thoughts: Thoughts) -> None:
        """Units that will not change any more."""
        self.left.append(thoughts)

    def gather(self) -> Result:
        """All results in the order of the full batch."""
        source = torch.cat([part.source for part in self.left])
        origin = torch.cat([part.origin for part in self.left])
        states = torch.cat([part.mixture() for part in self.left])
        ponder = torch.cat([part.books.ponder for part in self.left])
        kept = torch.cat([part.books.kept for part in self.left])
        computed = torch.cat([part.books.computed for part in self.left])
        back = torch.argsort(origin)
        return Result(put(states, source, source.shape[0]), take(ponder, back), kept[back], computed[back])


@dataclass(frozen=True)
class Memory:
    """Keys and values of whole rows, in which those of halted tokens stay as they were last written."""

    seen: KeysValues
    slots: Int[Tensor, " M"]
    """Where the tokens in thought are among the keys."""

    def write(
        self, slots: Int[Tensor, " K"], keys: Float[Tensor, "K H E"], values: Float[Tensor, "K H E"]
    ) -> "Memory":
        """New keys and values in `slots`."""
        return replace(
            self,
            seen=KeysValues(
                self.seen.keys.index_copy(0, slots, keys),
                self.seen.values.index_copy(0, slots, values),
                self.seen.packing,
            ),
        )

    def select(self, picked: Selection) -> "Memory":
        """Only the rows in `picked`, and only its tokens in thought."""
        slots = self.slots.index_select(0, picked.tokens)
        packing = self.seen.packing
        if picked.rows.shape[0] == packing.num_rows:
            return replace(self, slots=slots)
        stays = torch.zeros_like(packing.counts, dtype=torch.bool)
        stays[picked.rows] = True
        renumber = stays.index_select(0, packing.row).cumsum(0) - 1
        return Memory(self.seen.select_rows(picked.rows), renumber.index_select(0, slots))
