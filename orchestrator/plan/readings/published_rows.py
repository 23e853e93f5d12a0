"""Rows of published tables as plans hold them: whose they are, and which reading of ours they belong to."""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.plan.answer import metric_splits
from orchestrator.plan.display.format import setting_words
from orchestrator.plan.types import Plan
from orchestrator.spec.metric_splits import SELECTION_SPLIT
from search_spaces.dimensions import same
from search_spaces.paths import lookup

Row = Mapping[str, Any]


def of_cell(row: Row, settings: Mapping[str, Any]) -> bool:
    """Whether `settings` are in the cell that the row names; plans from before rows named one have any."""
    return all(same(lookup(settings, path), value) for path, value in row.get("cell", {}).items())


def of_reading(row: Row, overrides: Mapping[str, Any]) -> bool:
    """Whether the row is of what was read under `overrides`; of none as trained."""
    own = row.get("posthoc", {})
    return own.keys() == overrides.keys() and all(same(own[path], overrides[path]) for path in own)


def name_of(row: Row) -> str:
    """The system of the row with its cell, and with the setting that it was read again with:
    `baseline[model.width=64], model.halt.threshold=0.5`."""
    cell = setting_words(row.get("cell", {}), mark=",")
    system = f"{row['arm']}[{cell}]" if cell else str(row["arm"])
    return ", ".join(filter(None, [system, setting_words(row.get("posthoc", {}))]))


TRAIN = "train"
"""What is measured in training, apart from every split."""


def read_nowhere(plan: Plan) -> Iterator[Row]:
    """Rows of splits that no trial measures after its search: their values stand nowhere in the report."""
    declared = metric_splits(plan.search, plan.confirm, plan.answer).declared.values()
    read = {SELECTION_SPLIT, TRAIN, *plan.confirm.splits, *declared} if plan.confirm is not None else set()
    for row in plan.published:
        # The built-in trainable trains nothing when it reads again.
        again = plan.trainable is None and not row.get("alone") and row.get("posthoc")
        if row["split"] not in read or (again and row["split"] == TRAIN):
            yield row
