"""The forward pass of recurrence over depth that is compiled: one region between two waits of the host.

For blocks under early exit `compact` and the rule `undo`, whose units halt by states or by means over rows.
Keys and values of all units are made in the step in which some leave, and not again of those that stay.

Shapes: M packed tokens in B rows, U units, K keys, L of them before a step, D the width of a state, H heads
of width E.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trainables.layers import compiled
from trainables.layers.block import Block
from trainables.layers.halting import Decision, account
from trainables.layers.host import on_host, uploaded
from trainables.layers.packing import Packing
from trainables.layers.recomputing import RecomputableLayer
from trainables.layers.tokens import Tokens
from trainables.recurrence.depth_pass import ForwardPass, Proposal
from trainables.recurrence.depth_units import DepthUnits, EndedUnits
from trainables.regions import depth as region
from trainables.regions.halting import Account, RowOf, Step, decided


@runtime_checkable
class DecidesByRegion(Protocol):
    """A halting function that decides where its probabilities are made."""

    def decision(self, *features: Float[Tensor, "U D"], account: Account, **how: Any) -> Step:
        """As `regions.depth.decision`."""
        raise NotImplementedError


class Decided(NamedTuple):
    """What was decided for units, and what was proposed for them, if that came first."""

    step: Step
    proposed: Proposal | None


@dataclass(frozen=True)
class HeldKeys:
    """Keys and values of whole rows; those of halted tokens stay as they were last written."""

    both: Float[Tensor, "L 2 H E"] | None
    """None before any are made."""
    held: Int[np.ndarray, " K"]
    """Where those of each key are."""
    packing: Packing
    """Of the keys."""
    known: Int[np.ndarray, " M"]
    """Where the active tokens are among the keys."""

    @classmethod
    def begin(cls, packing: Packing) -> "HeldKeys":
        """Of all tokens of a full batch, to be made."""
        every = np.arange(packing.row.shape[0])
        return cls(None, every, packing, every)

    @property
    def all_active(self) -> bool:
        """Whether no token has halted in the rows that are left."""
        return len(self.known) == len(self.held)

    def with_made(self, both: Float[Tensor, "K 2 H E"]) -> "HeldKeys":
        """The same keys, which are those of the active tokens now, and of others those of before."""
        return replace(self, both=both, held=np.arange(both.shape[0]))

    def renewing(self, kept: Bool[np.ndarray, " K"]) -> region.Renewing:
        """How those of the active tokens are written, and which of all are `kept` then."""
        tokens = self.known.shape[0]
        of_made = np.full(self.held.shape, -1)
        of_made[self.known] = np.arange(tokens)
        of_before = np.where(of_made < 0, self.held, -1)[kept]
        of_made = of_made[kept]
        device = self.packing.row.device
        made = of_made, _inverse(of_made, tokens)
        if self.both is None or (of_before < 0).all():
            made_of, made_to = _uploaded(device, *made)
            return region.Renewing(None, made_of, None, made_to, None)
        tables = _uploaded(device, *made, of_before, _inverse(of_before, self.both.shape[0]))
        made_of, made_to, before_of, before_to = tables
        return region.Renewing(self.both, made_of, before_of, made_to, before_to)

    def kept(self, stays: Bool[np.ndarray, " M"]) -> Bool[np.ndarray, " K"]:
        """Which are in the rows in which a token stays."""
        row: np.ndarray = np.repeat(np.arange(self.packing.num_rows), self.packing.host_counts)
        any_stays = np.zeros(self.packing.num_rows, dtype=bool)
        any_stays[row[self.known[stays]]] = True
        found: np.ndarray = any_stays[row]
        return found

    def of_staying(self, stays: Bool[np.ndarray, " M"], kept: Bool[np.ndarray, " K"]) -> "HeldKeys":
        """Only those that are `kept`, and of their tokens only those that stay as active ones."""
        known = self.known[stays]
        if kept.all():
            return replace(self, known=known)
        renumber = kept.cumsum() - 1
        return HeldKeys(self.both, self.held[kept], self.packing.left(kept)[1], renumber[known])


@dataclass
class CompiledPass(ForwardPass):
    """The state of one forward pass."""

    keys: HeldKeys | None = None
    """Of whole rows, where tokens leave them."""
    renewed: bool = False
    """Whether they are those of the present states."""

    def __post_init__(self) -> None:
        if self.recurrence.tokens_leave:
            self.keys = HeldKeys.begin(self.units.packing)

    @property
    def _block(self) -> Block:
        assert isinstance(self.recurrence.layer, Block)
        return self.recurrence.layer

    def step(self, number: int) -> None:
        """Step `number`, counted from 1."""
        proposed = self._propose() if self.recurrence.transition else None
        decided = self._leaving(self._decided(number, proposed))
        if decided is None:
            return
        step, proposed = decided
        after = None
        if proposed is None:
            proposed, after = self._proposed(step)
        self.tell(number, Decision(step.weight, self.units.halting.active, None, step.survival), proposed)
        units = self.units
        if after is None:
            after = region.after(_present(units), None, step, _rows(units), delay=units.halting.delay)
        self.units = units.after(proposed.states, proposed.means, after)
        if number < self.recurrence.max_layers and number in self.caps:
            stay = on_host(self.units.halting.active)
            self.over = not stay.any()
            if not self.over and not stay.all():
                self._part(stay)

    def _leaving(self, decided: Decided) -> Decided | None:
        """Units that have crossed the threshold leave: the same of the others, if there are any."""
        assert decided.step.crossed is not None
        stay = ~on_host(decided.step.crossed)
        self.over = not stay.any()
        if self.over:
            return None
        if not stay.all():
            return self._part(stay, decided)
        return decided._replace(step=decided.step._replace(crossed=None))

    def end(self) -> None:
        """All units that are left have halted."""
        units = self.units
        ended = region.ended(_present(units), _rows(units))
        self.halted.add(EndedUnits(units.source, units.origin, *ended, units.halting.computed))

    def _decided(self, number: int, proposed: Proposal | None) -> Decided:
        recurrence, halt, present = self.recurrence, self.recurrence.halt, account(self.units.halting)
        how: dict[str, Any] = {"threshold": recurrence.threshold, "undo": True, "all_active": True}
        if number <= recurrence.origin:
            return Decided(decided(present, torch.zeros_like(present.survival), **how), proposed)
        features = self.units.features
        seen = (features,) if proposed is None else (features, proposed.features)
        assert isinstance(halt, RecomputableLayer)
        assert isinstance(halt, DecidesByRegion)
        return Decided(halt.use(halt.decision, *seen, account=present, **how), proposed)

    def _propose(self) -> Proposal:
        return self._proposed(None)[0]

    def _proposed(self, step: Step | None) -> tuple[Proposal, region.After | None]:
        """What the layer makes; and what is after the `step`, where that is told by the same region."""
        if self.keys is None:
            return super()._propose(), None
        states, made, after = self._block.use(self._onwards, self.units.tokens, self.keys, step)
        if made is not None:
            self.keys = self.keys.with_made(made)
        self.units, self.renewed = self.units.counted(), False
        return Proposal(states, None, ()), after

    def _onwards(
        self, tokens: Tokens, keys: HeldKeys, step: Step | None
    ) -> tuple[Tensor, Tensor | None, region.After | None]:
        block, both, anew = self._block, keys.both, None
        if not self.renewed:
            every = np.ones(keys.held.shape, dtype=bool)
            renewing = None if keys.all_active else keys.renewing(every)
            both, anew = None, region.Anew(compiled.making(block, tokens), renewing)
        return region.onwards(
            _present(self.units),
            step,
            anew,
            compiled.parts(block, tokens, compiled.rows_of_keys(keys.packing, both), keys.packing),
            heads=block.attention.heads,
            mixes=self.recurrence.sees_mixture,
            delay=self.units.halting.delay,
        )

    def _part(self, stay: Bool[np.ndarray, " U"], decided: Decided | None = None) -> Decided | None:
        """Take units that do not `stay` out of the batch; what was decided and proposed for the others."""
        units, counts = self.units, self.units.packing.host_counts
        parting = _Parting.of(units, stay, stay if units.per_token else np.repeat(stay, counts))
        renews = decided is not None and decided.proposed is None and self.keys is not None
        if renews:
            made = self._block.use(self._parted, units.tokens, parting, decided)
        else:
            made = self._parted(None, parting, decided)
        if self.keys is not None:
            kept = self.keys.kept(parting.stays)
            self.keys = self.keys.of_staying(parting.stays, kept)
            if made.keys is not None:
                self.keys, self.renewed = self.keys.with_made(made.keys), True
        self.halted.add(
            EndedUnits(units.source[~parting.stays], units.origin[~stay], *made.ended, units.halting.computed)
        )
        self.units = parting.staying(units, made)
        if made.outcome is None:
            return None
        step, proposed = made.outcome
        return Decided(step, None if proposed is None else Proposal(*proposed, ()))

    def _parted(self, tokens: Tokens | None, parting: "_Parting", decided: Decided | None) -> region.Parted:
        """By a region, which makes keys and values of all of the `tokens` if they are given."""
        units, anew, outcome = self.units, None, None
        if tokens is not None:
            assert self.keys is not None
            renewing = self.keys.renewing(self.keys.kept(parting.stays))
            anew = region.Anew(compiled.making(self._block, tokens), renewing)
        if decided is not None:
            step, made = decided
            outcome = region.Outcome(step, None if made is None else region.Proposed(made.states, made.means))
        return region.parted(
            # After a decision what units halt by is that of what comes next.
            _present(units, features=units.halts_by if decided is None else None),
            _numbers(units.tokens),
            outcome,
            anew,
            region.Cut(parting.tokens, parting.units, _rows(units)),
            heads=self._block.attention.heads,
            mixes=self.recurrence.sees_mixture,
        )


@dataclass(frozen=True)
class _Parting:
    """Which units stay."""

    stay: Bool[np.ndarray, " U"]
    stays: Bool[np.ndarray, " M"]
    """The same of tokens."""
    tokens: region.Halves
    units: region.Halves | None
    """None: these are the tokens."""
    rows: tuple[Int[Tensor, " B"], Int[np.ndarray, " B"]]
    """In which any stays, for the device and for the host."""
    packing: Packing
    """Of the tokens that stay."""

    @classmethod
    def of(cls, units: DepthUnits, stay: Bool[np.ndarray, " U"], stays: Bool[np.ndarray, " M"]) -> "_Parting":
        """Of `units` which `stay`, and so of their tokens."""
        rows, packing = units.packing.left(stays)
        known = [rows]
        for each in (stays,) if units.per_token else (stays, stay):
            order = np.argsort(~each, kind="stable")
            first = int(each.sum())
            known += [order[:first], order[first:], np.argsort(order)]
        tables = _uploaded(packing.row.device, *known)
        of_units = None if units.per_token else region.Halves(*tables[4:])
        return cls(stay, stays, region.Halves(*tables[1:4]), of_units, (tables[0], rows), packing)

    def staying(self, units: DepthUnits, made: region.Parted) -> DepthUnits:
        """Those of `units` that stay, for which a region has made these."""
        present, recalled = made.present, units.tokens.recalled
        tokens = units.tokens.some(self.packing, *made.numbers)
        if recalled is not None:
            tokens = replace(tokens, recalled=recalled.select_rows(*self.rows))
        survival, spent, kept, cap, active = present.account
        halting = replace(units.halting, survival=survival, spent=spent, kept=kept, cap=cap, active=active)
        return replace(
            units,
            tokens=tokens,
            source=units.source[self.stays],
            origin=units.origin[self.stay],
            states=present.states,
            mixed=present.mixed,
            halts_by=present.features,
            halting=halting,
        )


def _present(units: DepthUnits, features: Tensor | None = None) -> region.Present:
    return region.Present(units.states, units.mixed, account(units.halting), features)


def _numbers(tokens: Tokens) -> region.Numbers:
    return region.Numbers(tokens.place, tokens.query_rotation.where, tokens.reach, tokens.position)


def _rows(units: DepthUnits) -> RowOf | None:
    return None if units.per_token else RowOf(units.packing.row, units.packing.rows)


def _inverse(index: Int[np.ndarray, " K"], size: int) -> Int[np.ndarray, " M"]:
    """Of each number below `size` where it is in `index`; -1 is nowhere, in both."""
    found = np.full(size, -1)
    there = (index >= 0).nonzero()[0]
    found[index[there]] = there
    return found


def _uploaded(device: torch.device, *tables: Int[np.ndarray, " _"]) -> tuple[Int[Tensor, " _"], ...]:
    """All of them by one copy."""
    return torch.split(uploaded(np.concatenate(tables), device), [each.shape[0] for each in tables])
