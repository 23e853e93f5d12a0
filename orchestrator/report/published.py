"""Published values, each beside the very reading it belongs to: by arm, cell, setting, split and metric."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from orchestrator.plan.published_rows import name_of, of_cell
from orchestrator.plan.types import Arm, Plan
from orchestrator.report.types import Cell, PriorWork

MEDIAN = "median"


def beside(plan: Plan, cell: Cell, overrides: Mapping[str, Any], values: Sequence[float]) -> Cell:
    """The cell with what was published of it; `values` are ours, one a seed, read under `overrides`."""
    split, _, quantity = cell.metric.rpartition("/")
    arm = plan.arm(cell.arm)
    found = [
        row
        for row in plan.published
        if (row["split"], row["metric"]) == (split, quantity) and _belongs(row, arm, overrides)
    ]
    for row in found:
        if row.get("statistic") == MEDIAN:
            cell = replace(cell, median=median(values), published_median=float(row["value"]))
        else:
            cell = replace(cell, published=float(row["value"]), published_std=row.get("std"))
    sources = dict.fromkeys(str(row.get("source", "")) for row in found)
    return replace(cell, published_source="; ".join(filter(None, sources)))


def _belongs(row: Mapping[str, Any], arm: Arm, overrides: Mapping[str, Any]) -> bool:
    if row.get("alone") or row["arm"] not in (arm.name, arm.name.partition("[")[0]):
        return False
    if dict(row.get("posthoc", {})) != dict(overrides):
        return False
    return of_cell(row, arm.settings)


def prior_work(plan: Plan) -> Iterator[PriorWork]:
    """Rows of published tables that are of no arm."""
    for row in plan.published:
        if row.get("alone"):
            yield PriorWork(
                system=name_of(row),
                metric=f"{row['split']}/{row['metric']}",
                value=float(row["value"]),
                std=row.get("std"),
                statistic=row.get("statistic", "mean"),
                source=str(row.get("source", "")),
            )
