"""What compiled recurrence over depth keeps of units and of keys, and what regions need of both.

Shapes: M packed tokens in B rows, U units, K keys, L of them before a step, D the width of a state, H heads
of width E.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trainables.layers.halting import account
from trainables.layers.host import uploaded
from trainables.layers.packing import Packing
from trainables.layers.tokens import Tokens
from trainables.recurrence.depth_units import DepthUnits, EndedUnits
from trainables.regions import depth as region
from trainables.regions.halting import RowOf

LEAST: Final = 2
"""Entries of a table: one, or none, is a case of its own to PyTorch's compiler."""


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
            return after, (of_made, None, inverse(of_made, tokens), None)
        before_to = inverse(of_before, self.both.shape[0])
        return after, (of_made, of_before, inverse(of_made, tokens), before_to)

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
class UnitsStaying:
    """Which units stay, and what that leaves of their tokens."""

    stay: Bool[np.ndarray, " U"]
    stays: Bool[np.ndarray, " M"]
    """The same of tokens."""
    packing: Packing
    """Of the tokens that stay."""
    rows: Int[np.ndarray, " B"]
    """In which any stays."""

    @classmethod
    def of(cls, units: DepthUnits, stay: Bool[np.ndarray, " U"]) -> "UnitsStaying":
        """Of `units`."""
        stays = stay if units.per_token else np.repeat(stay, units.packing.host_counts)
        if stay.all():
            return cls(stay, stays, units.packing, np.arange(units.packing.num_rows))
        rows, packing = units.packing.left(stays)
        return cls(stay, stays, packing, rows)

    def exits(self, units: DepthUnits) -> region.Exits:
        """For regions."""
        tables = [*_halves(self.stays), *(() if units.per_token else _halves(self.stay))]
        found = uploaded_together(units.packing.row.device, *tables)
        of_units = None if units.per_token else region.Halves(*found[3:])
        return region.Exits(region.Halves(*found[:3]), of_units, rows_of(units))

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

    def only(
        self, units: DepthUnits, tokens: Tokens, found: region.Present, halts_by: Tensor | None = None
    ) -> DepthUnits:
        """Those of `units` that stay, which a region `found`."""
        source, origin = units.source[self.stays], units.origin[self.stay]
        tokens = tokens.some(self.packing, *found.numbers)
        return replace(updated(units, found, halts_by), tokens=tokens, source=source, origin=origin)


def present(units: DepthUnits) -> region.Present:
    """`units` as regions read them."""
    tokens = units.tokens
    numbers = region.Numbers(tokens.place, tokens.query_rotation.where, tokens.reach, tokens.position)
    return region.Present(units.states, units.mixed, account(units.halting), numbers)


def updated(units: DepthUnits, found: region.Present, halts_by: Tensor | None) -> DepthUnits:
    """The same `units`, of which a region `found` this, and what they halt by then."""
    survival, spent, kept, cap, active = found.account
    halting = replace(units.halting, survival=survival, spent=spent, kept=kept, cap=cap, active=active)
    return replace(units, states=found.states, mixed=found.mixed, halts_by=halts_by, halting=halting)


def rows_of(units: DepthUnits) -> RowOf | None:
    """Of tokens whose rows halt."""
    return None if units.per_token else RowOf(units.packing.row, units.packing.rows)


def _halves(stay: Bool[np.ndarray, " U"]) -> tuple[Int[np.ndarray, " _"], ...]:
    """As in `regions.depth.Halves`."""
    order = np.argsort(~stay, kind="stable")
    first = int(stay.sum())
    leaving = order[first:]
    return order[:first], np.pad(leaving, (0, max(0, LEAST - len(leaving)))), np.argsort(order)


def inverse(index: Int[np.ndarray, " K"], size: int) -> Int[np.ndarray, " M"]:
    """Of each number below `size` where it is in `index`; -1 is nowhere, in both."""
    found = np.full(size, -1)
    there = (index >= 0).nonzero()[0]
    found[index[there]] = there
    return found


def uploaded_together(device: torch.device, *tables: Int[np.ndarray, " _"]) -> tuple[Int[Tensor, " _"], ...]:
    """All of them by one copy, each at an even place behind the first, as kernels want it."""
    first = np.zeros(LEAST, dtype=np.int64)
    padded = [first, *(np.pad(each, (0, len(each) % 2)) for each in tables)]
    found = torch.split(uploaded(np.concatenate(padded), device), [len(each) for each in padded])
    return tuple(part[: len(each)] for part, each in zip(found[1:], tables, strict=True))
