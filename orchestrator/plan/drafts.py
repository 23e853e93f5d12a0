"""The arms a spec asks for, by name and by what they change, before anything is checked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from orchestrator.plan.faults import Keys
from orchestrator.spec.checks import BASELINE
from orchestrator.spec.scalars import dump
from orchestrator.spec.types import Spec


@dataclass(frozen=True, slots=True)
class Draft:
    """One arm in one cell of the grid."""

    label: str
    """Name without the cell: `baseline` or the arm's key in the spec."""
    why: str
    changes: Mapping[str, Any]
    """What the arm sets."""
    drop: tuple[str, ...]
    cell: Mapping[str, Any]
    """What the grid sets."""

    @property
    def name(self) -> str:
        """E.g. `minus-gate[model.max_layers=20]`."""
        if not self.cell:
            return self.label
        values = ",".join(f"{path}={dump(value, flow=True)}" for path, value in self.cell.items())
        return f"{self.label}[{values}]"

    @property
    def is_baseline(self) -> bool:
        """Whether the arm is the baseline of its cell."""
        return self.label == BASELINE

    def keys(self, path: str) -> Keys:
        """Where the spec says what this arm has at `path`."""
        if path in self.changes:
            return ("arms", self.label, "set", path)
        if path in self.cell:
            return ("grid", path)
        if self.is_baseline:
            return in_baseline(path)
        return ("arms", self.label)


def in_baseline(path: str) -> Keys:
    """Where the spec has the setting at `path`, of a list by position: `task.length_ranges.0`."""
    return ("baseline", *(int(part) if part.isdecimal() else part for part in path.split(".") if part))


def drafts(spec: Spec) -> Iterator[Draft]:
    """Every arm in every cell: the baseline in all cells first, then the arms in the order of the spec."""
    for cell in cells(spec):
        yield Draft(BASELINE, "what every arm is compared with", {}, (), cell)
    for name, arm in spec.arms.items():
        for cell in cells(spec):
            yield Draft(name, arm.why, arm.set, arm.drop, cell)


def cells(spec: Spec) -> list[dict[str, Any]]:
    """Every combination of the grid's values; one empty cell without a grid."""
    return [dict(zip(spec.grid, values, strict=True)) for values in product(*spec.grid.values())]
