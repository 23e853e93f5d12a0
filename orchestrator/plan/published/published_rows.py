"""Rows of published tables in plans: their systems and the evaluations that they correspond to."""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.plan.answer import metric_splits
from orchestrator.plan.display.format import setting_words
from orchestrator.plan.types import Plan
from orchestrator.spec.metric_splits import SELECTION_SPLIT
from search_spaces.dimensions import are_equal
from search_spaces.paths import lookup

Row = Mapping[str, Any]


def matches_cell(row: Row, settings: Mapping[str, Any]) -> bool:
    """Return whether `settings` match the grid cell of the row; rows of older plans match any settings."""
    return all(are_equal(lookup(settings, path), value) for path, value in row.get("cell", {}).items())


def matches_overrides(row: Row, overrides: Mapping[str, Any]) -> bool:
    """Return whether the row was measured with exactly these overrides."""
    row_overrides = row.get("posthoc", {})
    return row_overrides.keys() == overrides.keys() and all(
        are_equal(row_overrides[path], overrides[path]) for path in row_overrides
    )


def row_name(row: Row) -> str:
    """Return the name of the row's system with its cell and posthoc settings.

    Example: `baseline[model.width=64], model.halt.threshold=0.5`.
    """
    cell = setting_words(row.get("cell", {}), mark=",")
    system = f"{row['arm']}[{cell}]" if cell else str(row["arm"])
    return ", ".join(filter(None, [system, setting_words(row.get("posthoc", {}))]))


TRAIN_SPLIT = "train"
"""Name of training as a split of published values."""


def rows_without_evaluation(plan: Plan) -> Iterator[Row]:
    """Yield rows on splits that no trial measures after its search.

    The report cannot display them.
    """
    declared_splits = metric_splits(plan.search, plan.confirm, plan.answer).declared.values()
    read_splits = {SELECTION_SPLIT, TRAIN_SPLIT, *plan.test_splits, *declared_splits}
    if plan.confirm is None:
        read_splits = set()
    for row in plan.published:
        # A re-evaluation of the built-in trainable has no training metrics.
        is_reevaluated = plan.trainable is None and not row.get("alone") and row.get("posthoc")
        if row["split"] not in read_splits or (is_reevaluated and row["split"] == TRAIN_SPLIT):
            yield row
