"""The forward pass of recurrence over depth that is compiled: one region between two waits of the host.

For blocks under early exit `compact` and the rule `undo`, whose units halt by states or by means over rows.
Keys and values of all units are made in the step in which some leave, and not again of those that stay.

Shapes: M packed tokens in B rows, U units, K keys, L of them before a step, D the width of a state, H heads
of width E.
"""

from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trainables.layers import compiled
from trainables.layers.block import Block
from trainables.layers.halting import account
from trainables.layers.host import on_host, uploaded
from trainables.layers.packing import Packing
from trainables.layers.recomputing import RecomputableLayer
from trainables.layers.tokens import Tokens
from trainables.recurrence.depth_pass import ForwardPass, Proposal
from trainables.recurrence.depth_units import DepthResult, DepthUnits, EndedUnits
from trainables.regions import depth as region
from trainables.regions.block import Affine, LayerParts
from trainables.regions.halting import RowOf, Step, decided

LEAST: Final = 2
"""Entries of a table: one, or none, is a case of its own to PyTorch's compiler."""


@runtime_checkable
class HasAffines(Protocol):
    """A halting function whose probabilities are those of `regions.halting.probability`."""

    def affines(self) -> tuple[Affine, Affine]:
        """Its two maps."""
        raise NotImplementedError


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

    def written(
        self, stays: Bool[np.ndarray, " M"], made: Bool[np.ndarray, " M"]
    ) -> "tuple[HeldKeys, tuple[Int[np.ndarray, ' _'] | None, ...]]":
        """Those of rows in which a token stays, which are the active ones then, and tables as in
        `regions.depth.Anew` by which those `made` are written; but for the tensor itself."""
        tokens, kept = len(self.known), self._kept(stays)
        of_made = np.full(self.held.shape, -1)
        of_made[self.known[made]] = made.nonzero()[0]
        of_before, of_made = np.where(of_made < 0, self.held, -1)[kept], of_made[kept]
        after = replace(self.of_staying(stays), held=np.arange(len(of_made)))
        if self.both is None:
            return after, (of_made, None, _inverse(of_made, tokens), None)
        before_to = _inverse(of_before, self.both.shape[0])
        return after, (of_made, of_before, _inverse(of_made, tokens), before_to)

    def of_staying(self, stays: Bool[np.ndarray, " M"]) -> "HeldKeys":
        """Only rows in which a token stays, and of their tokens only these as active ones."""
        kept = self._kept(stays)
        packing = self.packing if kept.all() else self.packing.left(kept)[1]
        return HeldKeys(self.both, self.held[kept], packing, (kept.cumsum() - 1)[self.known[stays]])

    def _kept(self, stays: Bool[np.ndarray, " M"]) -> Bool[np.ndarray, " K"]:
        row: np.ndarray = np.repeat(np.arange(self.packing.num_rows), self.packing.host_counts)
        any_stays = np.zeros(self.packing.num_rows, dtype=bool)
        any_stays[row[self.known[stays]]] = True
        found: np.ndarray = any_stays[row]
        return found


@dataclass(frozen=True)
class Parting:
    """Which units stay, and what that leaves of their tokens."""

    stay: Bool[np.ndarray, " U"]
    stays: Bool[np.ndarray, " M"]
    """The same of tokens."""
    packing: Packing
    """Of the tokens that stay."""
    rows: Int[np.ndarray, " B"]
    """In which any stays."""

    @classmethod
    def of(cls, units: DepthUnits, stay: Bool[np.ndarray, " U"]) -> "Parting":
        """Of `units`."""
        stays = stay if units.per_token else np.repeat(stay, units.packing.host_counts)
        if stay.all():
            return cls(stay, stays, units.packing, np.arange(units.packing.num_rows))
        rows, packing = units.packing.left(stays)
        return cls(stay, stays, packing, rows)

    def cut(self, units: DepthUnits) -> region.Cut:
        """For regions."""
        tables = [*_halves(self.stays), *(() if units.per_token else _halves(self.stay))]
        found = _uploaded(units.packing.row.device, *tables)
        of_units = None if units.per_token else region.Halves(*found[3:])
        return region.Cut(region.Halves(*found[:3]), of_units, _rows(units))

    def tokens(self, units: DepthUnits) -> Tokens:
        """Those that stay, with numbers of all of the tokens still."""
        found, rows = units.tokens, self.rows
        if found.recalled is not None and len(rows) < units.packing.num_rows:
            where = uploaded(rows, units.packing.row.device)
            found = replace(found, recalled=found.recalled.select_rows(where, rows))
        return replace(found, packing=self.packing)

    def ended(self, units: DepthUnits, left: region.Ended) -> EndedUnits:
        """What units leave behind, of which a region says what they `left`."""
        source, origin = (
            np.pad(each, (0, max(0, LEAST - len(each))), constant_values=-1)
            for each in (units.source[~self.stays], units.origin[~self.stay])
        )
        return EndedUnits(source, origin, *left, units.halting.computed)

    def staying(
        self, units: DepthUnits, tokens: Tokens, found: region.Present, halts_by: Tensor | None = None
    ) -> DepthUnits:
        """Those of `units` that stay, which a region `found`."""
        source, origin = units.source[self.stays], units.origin[self.stay]
        tokens = tokens.some(self.packing, *found.numbers)
        return replace(_updated(units, found, halts_by), tokens=tokens, source=source, origin=origin)


@dataclass
class CompiledPass(ForwardPass):
    """The state of one forward pass. Its halted results have entries that are of no unit, as sizes want."""

    keys: HeldKeys | None = None
    """Of whole rows, where tokens leave them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        units, counts = self.units, self.units.packing.host_counts
        self._size = len(units.source), len(units.origin)
        self._cap = np.repeat(self.row_caps, counts) if units.per_token else self.row_caps
        self._capped = np.zeros(self._size[1], dtype=bool)
        """Which units may take no more steps, but are still in the batch."""
        if self.recurrence.tokens_leave:
            self.keys = HeldKeys.begin(units.packing)

    @property
    def _block(self) -> Block:
        assert isinstance(self.recurrence.layer, Block)
        return self.recurrence.layer

    def step(self, number: int) -> None:
        """Step `number`, counted from 1."""
        made, step = self._weighed(number) if self.recurrence.transition else (None, self._decided(number))
        assert step.crossed is not None
        stay = ~(on_host(step.crossed) | self._capped)
        self.over = not stay.any()
        if self.over:
            return
        if made is not None:
            self._settle(number, stay, step, made)
            return
        self._leave_and_go_on(stay, step)
        self._capped = self._cap == number

    def end(self) -> None:
        """All units that are left have halted."""
        units = self.units
        left = region.ended(_present(units), _rows(units))
        self.halted.add(EndedUnits(units.source, units.origin, *left, units.halting.computed))

    def result(self) -> DepthResult:
        """How all units ended, once all have left."""
        left, device = self.halted.left, self.units.states.device
        columns = (
            torch.cat(each) for each in zip(*((e.states, e.ponder, e.kept) for e in left), strict=True)
        )
        source, origin = (
            np.concatenate(each) for each in zip(*((e.source, e.origin) for e in left), strict=True)
        )
        orders = [
            (_inverse(each, size), each) for each, size in zip((source, origin), self._size, strict=True)
        ]
        out, back, out_of_units, back_of_units = _uploaded(device, *orders[0], *orders[1])
        found = region.in_order(
            region.Ended(*columns), region.Order(out, back), region.Order(out_of_units, back_of_units)
        )
        computed = np.repeat([each.computed for each in left], [len(each.origin) for each in left])
        return DepthResult(*found, uploaded(computed[orders[1][0]], device), self.layer_outputs)

    def _decided(self, number: int, made: Proposal | None = None) -> Step:
        recurrence, present = self.recurrence, account(self.units.halting)
        threshold, proposed = recurrence.threshold, None if made is None else made.features
        if number <= recurrence.origin:
            p = torch.zeros_like(present.survival)
            return decided(present, p, threshold=threshold, undo=True, all_active=True)

        def run(features: Tensor) -> Step:
            maps = self._maps()
            return region.decision(
                features, proposed, *maps, present, threshold=threshold, undo=True, all_active=True
            )

        return self._halt.use(run, self.units.features)

    def _weighed(self, number: int) -> tuple[Proposal, Step]:
        """What the layer makes of all active units, and what is decided by it."""
        if self.keys is None and self.recurrence.sees_mixture:
            made = self._propose()
            return made, self._decided(number, made)
        (states, features), step, both = self._block.use(self._proposed, self.units.tokens, self.keys, number)
        self.units, made = self.units.counted(), Proposal(states, features, ())
        if self.keys is not None:
            self.keys = replace(self.keys, both=both)
        return made, self._decided(number) if step is None else step

    def _proposed(
        self, tokens: Tokens, keys: HeldKeys | None, number: int
    ) -> tuple[region.Proposed, Step | None, Tensor | None]:
        block, units, recurrence, anew = self._block, self.units, self.recurrence, None
        if keys is None:
            parts = compiled.parts(block, tokens, None, tokens.packing)
        else:
            every = np.ones(keys.known.shape, dtype=bool)
            self.keys, anew = self._anew(tokens, keys, every, every)
            parts = self._parts(tokens, self.keys)

        def run(deciding: region.Deciding | None) -> tuple[region.Proposed, Step | None, Tensor | None]:
            return region.proposed(
                _present(units),
                deciding,
                anew,
                parts,
                None if units.per_token else units.packing.counts,
                mixes=recurrence.sees_mixture,
                heads=block.attention.heads,
                threshold=recurrence.threshold,
            )

        if number <= recurrence.origin:
            return run(None)
        return self._halt.use(lambda: run(region.Deciding(units.halts_by, *self._maps())))

    @property
    def _halt(self) -> RecomputableLayer:
        assert isinstance(self.recurrence.halt, RecomputableLayer)
        return self.recurrence.halt

    def _maps(self) -> tuple[Affine, Affine]:
        assert isinstance(self.recurrence.halt, HasAffines)
        return self.recurrence.halt.affines()

    def _settle(self, number: int, stay: Bool[np.ndarray, " U"], step: Step, made: Proposal) -> None:
        """The step to what was `made` is taken by units that `stay`, of which some may leave after it."""
        units, capped = self.units, self._cap == number
        self.over = number < self.recurrence.max_layers and not (stay & ~capped).any()
        if number < self.recurrence.max_layers and not self.over:
            stay = stay & ~capped
        parting = Parting.of(units, stay)
        proposed, cut = region.Proposed(made.states, made.means), parting.cut(units)
        found, means, left = region.settled(_present(units), step, proposed, cut, delay=units.halting.delay)
        self.halted.add(parting.ended(units, left))
        self.units = parting.staying(units, parting.tokens(units), found, means)
        self._cap, self._capped = self._cap[stay], self._capped[stay]
        if self.keys is not None:
            self.keys = self.keys.of_staying(parting.stays)

    def _leave_and_go_on(self, stay: Bool[np.ndarray, " U"], step: Step) -> None:
        """Units that do not `stay` leave; the others take the step."""
        units, parting = self.units, Parting.of(self.units, stay)
        tokens = parting.tokens(units)
        if self.keys is None:
            present, step, left = region.parted(_present(units), step, parting.cut(units))
            self.units = parting.staying(units, tokens, present)
            made, rows = self._propose(), _rows(self.units)
            found = region.after(_present(self.units), made.states, step, rows, delay=units.halting.delay)
            self.units = _updated(self.units, found, made.means)
        else:
            found, left, both = self._block.use(self._onwards, tokens, self.keys, parting, step)
            self.units = parting.staying(units, tokens, found).counted()
            self.keys = replace(self.keys, both=both)
        self.halted.add(parting.ended(units, left))
        self._cap = self._cap[stay]

    def _onwards(
        self, tokens: Tokens, keys: HeldKeys, parting: Parting, step: Step
    ) -> tuple[region.Present, region.Ended, Tensor]:
        units, mixes = self.units, self.recurrence.sees_mixture
        # What leaves at its cap is seen as it was before its last step.
        self.keys, anew = self._anew(tokens, keys, parting.stays, ~self._capped)
        cut, parts = parting.cut(units), self._parts(tokens, self.keys)
        how = self._block.attention.heads, units.halting.delay
        return region.onwards(_present(units), step, cut, anew, parts, mixes=mixes, how=how)

    def _anew(
        self, tokens: Tokens, keys: HeldKeys, stays: Bool[np.ndarray, " M"], made: Bool[np.ndarray, " M"]
    ) -> tuple[HeldKeys, region.Anew]:
        after, tables = keys.written(stays, made)
        there = iter(_uploaded(tokens.place.device, *(each for each in tables if each is not None)))
        found = (None if each is None else next(there) for each in tables)
        return after, region.Anew(*compiled.making(self._block, tokens)[:2], keys.both, *found)  # type: ignore[arg-type]

    def _parts(self, tokens: Tokens, keys: HeldKeys) -> LayerParts:
        return compiled.parts(self._block, tokens, compiled.rows_of_keys(keys.packing), keys.packing)


def _present(units: DepthUnits) -> region.Present:
    tokens = units.tokens
    numbers = region.Numbers(tokens.place, tokens.query_rotation.where, tokens.reach, tokens.position)
    return region.Present(units.states, units.mixed, account(units.halting), numbers)


def _updated(units: DepthUnits, found: region.Present, halts_by: Tensor | None) -> DepthUnits:
    survival, spent, kept, cap, active = found.account
    halting = replace(units.halting, survival=survival, spent=spent, kept=kept, cap=cap, active=active)
    return replace(units, states=found.states, mixed=found.mixed, halts_by=halts_by, halting=halting)


def _rows(units: DepthUnits) -> RowOf | None:
    return None if units.per_token else RowOf(units.packing.row, units.packing.rows)


def _halves(stay: Bool[np.ndarray, " U"]) -> tuple[Int[np.ndarray, " _"], ...]:
    """As in `regions.depth.Halves`."""
    order = np.argsort(~stay, kind="stable")
    first = int(stay.sum())
    leaving = order[first:]
    return order[:first], np.pad(leaving, (0, max(0, LEAST - len(leaving)))), np.argsort(order)


def _inverse(index: Int[np.ndarray, " K"], size: int) -> Int[np.ndarray, " M"]:
    """Of each number below `size` where it is in `index`; -1 is nowhere, in both."""
    found = np.full(size, -1)
    there = (index >= 0).nonzero()[0]
    found[index[there]] = there
    return found


def _uploaded(device: torch.device, *tables: Int[np.ndarray, " _"]) -> tuple[Int[Tensor, " _"], ...]:
    """All of them by one copy, each at an even place behind the first, as kernels want it."""
    first = np.zeros(LEAST, dtype=np.int64)
    padded = [first, *(np.pad(each, (0, len(each) % 2)) for each in tables)]
    found = torch.split(uploaded(np.concatenate(padded), device), [len(each) for each in padded])
    return tuple(part[: len(each)] for part, each in zip(found[1:], tables, strict=True))
