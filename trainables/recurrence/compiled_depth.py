"""The forward pass of recurrence over depth that is compiled: one region between two waits of the host.

For blocks under early exit `compact` and the rule `undo`, whose units halt by states or by means over rows.
Keys and values of all units are made in the step in which some leave, and not again of those that stay.

Shapes: M packed tokens in B rows, U units, K keys, L of them before a step, D the width of a state, H heads
of width E.
"""

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from trainables.layers import compiled
from trainables.layers.block import Block
from trainables.layers.halting import account
from trainables.layers.host import on_host, uploaded
from trainables.layers.recomputing import RecomputableLayer
from trainables.layers.tokens import Tokens
from trainables.recurrence.compiled_units import (
    HeldKeys,
    UnitsStaying,
    inverse,
    present,
    rows_of,
    updated,
    uploaded_together,
)
from trainables.recurrence.depth_pass import DepthPass, Proposal
from trainables.recurrence.depth_units import DepthResult, EndedUnits
from trainables.regions import depth as region
from trainables.regions.block import Affine, LayerParts
from trainables.regions.halting import Step, decided


@runtime_checkable
class HasAffines(Protocol):
    """A halting function whose probabilities are those of `regions.halting.probability`."""

    def affines(self) -> tuple[Affine, Affine]:
        """Its two maps."""
        raise NotImplementedError


@dataclass
class CompiledPass(DepthPass):
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
        left = region.ended(present(units), rows_of(units))
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
            (inverse(each, size), each) for each, size in zip((source, origin), self._size, strict=True)
        ]
        out, back, out_of_units, back_of_units = uploaded_together(device, *orders[0], *orders[1])
        found = region.in_order(
            region.Ended(*columns), region.Order(out, back), region.Order(out_of_units, back_of_units)
        )
        computed = np.repeat([each.computed for each in left], [len(each.origin) for each in left])
        return DepthResult(*found, uploaded(computed[orders[1][0]], device), self.layer_outputs)

    def _decided(self, number: int, made: Proposal | None = None) -> Step:
        recurrence, halting = self.recurrence, account(self.units.halting)
        threshold, proposed = recurrence.threshold, None if made is None else made.features
        if number <= recurrence.origin:
            p = torch.zeros_like(halting.survival)
            return decided(halting, p, threshold=threshold, undo=True, all_active=True)

        def run(features: Tensor) -> Step:
            maps = self._maps()
            return region.decision(
                features, proposed, *maps, halting, threshold=threshold, undo=True, all_active=True
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
                present(units),
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
        staying = UnitsStaying.of(units, stay)
        proposed, exits = region.Proposed(made.states, made.means), staying.exits(units)
        found, means, left = region.settled(present(units), step, proposed, exits, delay=units.halting.delay)
        self.halted.add(staying.ended(units, left))
        self.units = staying.only(units, staying.tokens(units), found, means)
        self._cap, self._capped = self._cap[stay], self._capped[stay]
        if self.keys is not None:
            self.keys = self.keys.of_staying(staying.stays)

    def _leave_and_go_on(self, stay: Bool[np.ndarray, " U"], step: Step) -> None:
        """Units that do not `stay` leave; the others take the step."""
        units, staying = self.units, UnitsStaying.of(self.units, stay)
        tokens = staying.tokens(units)
        if self.keys is None:
            here, step, left = region.parted(present(units), step, staying.exits(units))
            self.units = staying.only(units, tokens, here)
            made, rows = self._propose(), rows_of(self.units)
            found = region.after(present(self.units), made.states, step, rows, delay=units.halting.delay)
            self.units = updated(self.units, found, made.means)
        else:
            found, left, both = self._block.use(self._onwards, tokens, self.keys, staying, step)
            self.units = staying.only(units, tokens, found).counted()
            self.keys = replace(self.keys, both=both)
        self.halted.add(staying.ended(units, left))
        self._cap = self._cap[stay]

    def _onwards(
        self, tokens: Tokens, keys: HeldKeys, staying: UnitsStaying, step: Step
    ) -> tuple[region.Present, region.Ended, Tensor]:
        units, mixes = self.units, self.recurrence.sees_mixture
        # What leaves at its cap is seen as it was before its last step.
        self.keys, anew = self._anew(tokens, keys, staying.stays, ~self._capped)
        exits, parts = staying.exits(units), self._parts(tokens, self.keys)
        how = self._block.attention.heads, units.halting.delay
        return region.onwards(present(units), step, exits, anew, parts, mixes=mixes, how=how)

    def _anew(
        self, tokens: Tokens, keys: HeldKeys, stays: Bool[np.ndarray, " M"], made: Bool[np.ndarray, " M"]
    ) -> tuple[HeldKeys, region.Anew]:
        after, tables = keys.written(stays, made)
        there = iter(uploaded_together(tokens.place.device, *(each for each in tables if each is not None)))
        found = (None if each is None else next(there) for each in tables)
        return after, region.Anew(*compiled.making(self._block, tokens)[:2], keys.both, *found)  # type: ignore[arg-type]

    def _parts(self, tokens: Tokens, keys: HeldKeys) -> LayerParts:
        return compiled.parts(self._block, tokens, compiled.rows_of_keys(keys.packing), keys.packing)
