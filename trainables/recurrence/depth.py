"""The recursion over depth that UT, GUT and their ablations share, and how halting saves its work.

One step: look, propose the next states, decide who halts, keep or undo. If halting does not look at the next
states and an undone step would be thrown away, the decision comes first and the step is never run.
"""

from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from trainables.layers.halting import Decision, Rule, decide
from trainables.layers.packing import take
from trainables.layers.positions import Rotation
from trainables.layers.tokens import KeysValues, Tokens
from trainables.recurrence.active_units import Harvest, Memory, Notes, Result, Selection, Thoughts, Told

EarlyExit = Literal["compact", "batch", "none"]


@runtime_checkable
class Repeated(Protocol):
    """A layer whose keys and values are made apart from its queries."""

    def keys_values(
        self, x: Float[Tensor, "M D"], rotation: Rotation
    ) -> tuple[Float[Tensor, "M H E"], Float[Tensor, "M H E"]]:
        """What tokens with states `x` show to others."""
        raise NotImplementedError

    def __call__(
        self, x: Float[Tensor, "M D"], tokens: Tokens, seen: KeysValues | None = None
    ) -> Float[Tensor, "M D"] | tuple[Float[Tensor, "M D"], Notes]:
        """The next states, and what else there is to tell; tokens see each other, if `seen` is not given."""
        raise NotImplementedError


@dataclass(frozen=True)
class Recursion:
    """What is repeated, and when it ends."""

    block: Repeated
    halt: nn.Module
    """Halting probabilities from features `U F`, one a unit."""
    max_layers: int
    threshold: float
    rule: Rule
    origin: int
    per_token: bool
    running: bool
    """Tokens halt by the mean over their row so far: what a global halt is in a causal model."""
    transition: bool
    sees_mixture: bool
    early_exit: EarlyExit
    length_bounds: bool = True
    """A unit keeps at most as many layers as its row has tokens, plus one; never in a causal row, which does
    not know its length yet."""
    delay: int = 1
    """Layers that deciding on a state costs beyond those that made it."""

    def run(self, states: Float[Tensor, "M D"], tokens: Tokens) -> Result:
        """Repeat the block on all tokens of a batch until each unit has halted."""
        cap = torch.full_like(tokens.packing.counts, self.max_layers)
        if self.length_bounds and tokens.reach is None:
            cap = torch.minimum(cap, tokens.packing.counts + 1)
        live = Thoughts.begin(
            states, tokens, cap, per_token=self.per_token, running=self.running, delay=self.delay
        )
        run = _Run(self, live, least_cap=int(cap.min()))
        for number in range(1, self.max_layers + 1):
            run.step(number)
            if run.over:
                break
        run.harvest.add(run.live)
        return replace(run.harvest.gather(), told=run.told)


@dataclass(frozen=True)
class _Proposal:
    """What a step would make of the tokens."""

    states: Float[Tensor, "M D"]
    summary: Float[Tensor, "U D"]
    notes: Notes

    def select(self, picked: Selection) -> "_Proposal":
        """Of some units."""
        states = take(self.states, picked.tokens)
        summary = states if self.summary is self.states else take(self.summary, picked.units)
        return _Proposal(states, summary, tuple(take(note, picked.tokens) for note in self.notes))


@dataclass
class _Run:
    """One forward pass: who is still in the batch, and what those who left it have come to."""

    plan: Recursion
    live: Thoughts
    least_cap: int
    harvest: Harvest = field(default_factory=Harvest)
    told: list[Told] = field(default_factory=list)
    memory: Memory | None = None
    over: bool = False

    def step(self, number: int) -> None:
        """Step `number`, counted from 1."""
        undo = self.plan.rule == "undo"
        proposed = self._propose() if self.plan.transition else None
        decision = self._decide(number, proposed)
        if undo:
            picked = self._leave(~decision.crossed, stale=not self.plan.transition)
            if self.over:
                return
            if picked is not None:
                decision = decision.select(picked.units)
                proposed = None if proposed is None else proposed.select(picked)
        made = self._propose() if proposed is None else proposed
        if made.notes:
            weight = self.live.at_tokens(decision.survival * decision.keeps).squeeze(1)
            self.told.append(Told(made.notes, weight))
        all_keep = self.plan.early_exit == "compact"
        self.live = self.live.step(made.states, made.summary, decision, all_keep=all_keep)
        if number < self.plan.max_layers and (not undo or number >= self.least_cap):
            self._leave(self.live.books.active, stale=not undo)

    def _propose(self) -> _Proposal:
        """What the next step makes of all that think."""
        made = self.plan.block(self.live.states, self.live.tokens, self._look())
        states, notes = made if isinstance(made, tuple) else (made, ())
        self.live = self.live.counted()
        return _Proposal(states, self.live.summarise(states), notes)

    def _decide(self, number: int, proposed: _Proposal | None) -> Decision:
        books, features = self.live.books, self.live.summary
        if number <= self.plan.origin:
            p = torch.zeros_like(books.survival)
        else:
            p = self.plan.halt(features if proposed is None else torch.cat((features, proposed.summary), -1))
        return decide(books, p, self.plan.threshold, self.plan.rule)

    def _look(self) -> KeysValues | None:
        """Keys and values of every token in a row that still thinks; None for those of its own last state."""
        leaves_alone = self.plan.per_token and self.plan.early_exit == "compact"
        if not (leaves_alone or self.plan.sees_mixture):
            return None
        keys, values = self._keys_values(self.live)
        if not leaves_alone:
            return KeysValues(keys, values, self.live.tokens.packing)
        if self.memory is None:
            slots = torch.arange(keys.shape[0], device=keys.device)
            self.memory = Memory(KeysValues(keys, values, self.live.tokens.packing), slots)
        else:
            self.memory = self.memory.write(self.memory.slots, keys, values)
        return self.memory.seen

    def _keys_values(self, thoughts: Thoughts) -> tuple[Tensor, Tensor]:
        source = thoughts.mixture() if self.plan.sees_mixture else thoughts.states
        return self.plan.block.keys_values(source, thoughts.tokens.key_rotation)

    def _leave(self, stay: Bool[Tensor, " U"], *, stale: bool) -> Selection | None:
        """Let go of units outside `stay`; what is selected of the rest, or None if nothing left the batch.

        `stale`: the leaving states are newer than the keys and values that were last written for them.
        """
        if self.plan.early_exit == "none":
            return None
        if self.plan.early_exit == "batch":
            self.over = not bool((stay & self.live.books.active).any())
            return None
        if bool(stay.all()):
            return None
        staying = self.live.pick(stay)
        self.over = staying.units.shape[0] == 0
        if self.over:
            return None
        going = self.live.pick(~stay)
        # Who leaves recalls nothing any more.
        forgetful = replace(self.live, tokens=replace(self.live.tokens, recalled=None))
        gone = forgetful.select(going)
        self.harvest.add(gone)
        if self.plan.per_token:
            self._remember(gone, going, staying, stale=stale)
        self.live = self.live.select(staying)
        return staying

    def _remember(self, gone: Thoughts, going: Selection, staying: Selection, *, stale: bool) -> None:
        """Others still look at tokens that halted: keep the keys and values of their final states."""
        if self.memory is None:
            self._look()
        elif stale:
            slots = self.memory.slots.index_select(0, going.tokens)
            self.memory = self.memory.write(slots, *self._keys_values(gone))
        assert self.memory is not None
        self.memory = self.memory.select(staying)
