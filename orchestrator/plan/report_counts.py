"""Count the reports of trials of built-in models, and warn about settings that need more reports."""

from collections.abc import Iterator
from math import ceil

from orchestrator.plan.types import Arm, Plan
from search_spaces.paths import lookup
from search_spaces.wording import amount

REPORT_COUNT_FIELDS = ("train.steps", "train.report_every")
"""Fields that determine the number of reports of a trial."""
MIN_EXTRA_REPORTS = 3
"""A value of n has an effect only if a trial has at least n + 3 reports.

The first report is always the best so far, n + 1 reports without improvement follow, and no training follows
the last report.
"""
EFFECT_BY_FIELD = {
    "train.patience": "can never end a training early",
    "train.halve_after": "can never halve the learning rate",
}


def num_reports(plan: Plan) -> int | None:
    """Return the maximum number of reports of a trial; None if the plan does not determine it."""
    counts = [_count_reports(arm) for arm in plan.arms] if plan.trainable is None else []
    known_counts = [count for count in counts if count is not None]
    return max(known_counts) if counts and len(known_counts) == len(counts) else None


def idle_patience_warnings(plan: Plan) -> Iterator[str]:
    """Yield warnings about early stopping and schedules that wait for more reports than training has."""
    arms_by_text: dict[tuple[str, str], list[str]] = {}
    for arm in plan.arms if plan.trainable is None else ():
        if (reports := _count_reports(arm)) is None:
            continue
        for path, effect in EFFECT_BY_FIELD.items():
            value = lookup(arm.settings, path)
            if path in arm.space.paths or not isinstance(value, int) or value <= reports - MIN_EXTRA_REPORTS:
                continue
            need = f"needs {value + MIN_EXTRA_REPORTS} reports; lower train.report_every"
            text = f"{path} {effect}: a trial reports {_times_text(reports)}, and {path}: {value} {need}"
            arms_by_text.setdefault((path, text), []).append(arm.name)
    for (_, text), names in arms_by_text.items():
        scope = "" if len(names) == len(plan.arms) else f"{', '.join(names)}: "
        yield f"Warning: {scope}{text}."


def _count_reports(arm: Arm) -> int | None:
    """Return the number of reports of a trial of a built-in model; None if a search varies it."""
    if any(path in arm.space.paths for path in REPORT_COUNT_FIELDS):
        return None
    steps, every = (lookup(arm.settings, path) for path in REPORT_COUNT_FIELDS)
    return ceil(steps / every) if isinstance(steps, int) and isinstance(every, int) else None


def _times_text(reports: int) -> str:
    return "only once, at its end" if reports == 1 else f"only {amount(reports, 'time')}"
