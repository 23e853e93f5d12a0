"""Create warnings about single comparisons; each has a code, an arm and an outcome."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import median
from typing import Any, Final

from orchestrator.plan.planned_trials import SEARCH
from orchestrator.plan.types import Plan
from orchestrator.report.caveats.caveat_types import ReportWarning, WarningCode
from orchestrator.report.results.arm_changes import ArmChanges, chosen_values, format_chosen
from orchestrator.report.results.number_formats import format_number
from orchestrator.report.results.searches import relative_position
from orchestrator.report.results.types import ArmVerdict, Report
from orchestrator.trials import OutcomeKind, Record
from search_spaces.dimensions import Choice, Dimension, Fixed, are_equal
from search_spaces.wording import amount

MAX_LISTED: Final = 8
MAX_FLOOR_SHARE: Final = 0.01
"""An arm is at the floor if its values cover at most this share of the way to the best possible value."""
MIN_CHOICE_DISTANCE: Final = 0.25
"""Typical choices of two arms count as different from this share of the searched range on."""
WARNING_INTRODUCTIONS: Final[Mapping[WarningCode, str]] = {
    "different-test-sets": "Verdicts are withheld, because arms were measured on different examples",
    "fixed-by-construction": "Outcomes that are fixed by settings are not tested",
    "chosen-differently": (
        "Different choices of the searches, which had other objectives, may explain the differences in these "
        "outcomes"
    ),
    "several-fields": (
        "Differences of these arms cannot be attributed to one field, because they change several"
    ),
    "one-finished-trial": "These searches made no choice, because only one trial finished",
    "at-floor": "These arms do not exceed the value without learning",
}


def answer_warnings(plan: Plan, report: Report, records: Sequence[Record]) -> Iterator[ReportWarning]:
    """Yield the warnings about the comparisons, in the order of their codes in `WARNING_INTRODUCTIONS`."""
    verdicts = (*report.verdicts, *report.controls, *report.pooled)
    for code, verdict in product(WARNING_INTRODUCTIONS, verdicts):
        if verdict.withheld == code:
            yield ReportWarning(code, verdict.arm, verdict.metric, verdict.text.partition(": ")[2])
    for verdict in report.verdicts:
        yield from _different_choice_warnings(plan, report, verdict)
    for changes in report.changes:
        if len(fields := _changed_fields(changes)) > 1:
            yield ReportWarning(
                "several-fields", changes.arm, "", f"{changes.arm} changes {_join_listed(fields)}"
            )
    yield from _one_finished_trial_warnings(plan, records)
    yield from _floor_warnings(report)


def warning_lines(report: Report) -> list[str]:
    """Return the warnings of a report as sentences, one for each code."""
    arms_by_warning: dict[WarningCode, dict[str, None]] = {}
    for warning in report.warnings:
        arms_by_warning.setdefault(warning.code, {})[warning.text] = None
    return [
        f"{WARNING_INTRODUCTIONS[code]}: {_join_listed([*texts], '; ')}."
        for code, texts in arms_by_warning.items()
    ]


def _different_choice_warnings(plan: Plan, report: Report, verdict: ArmVerdict) -> Iterator[ReportWarning]:
    """Yield a warning if a difference in a cost may come from different choices of the two searches.

    Only for searches whose objective is not this cost.
    """
    metric, quantity = report.quantity(verdict.metric), report.splits.quantity(verdict.metric)
    objectives = plan.objectives
    is_objective = quantity in {report.splits.quantity(objective.metric) for objective in objectives}
    if not verdict.is_decided or is_objective or not (metric.is_cost or metric.moves_with):
        return
    changes = {arm.arm: arm for arm in report.changes}
    pair = [changes[arm] for arm in (verdict.arm, verdict.reference) if arm in changes]
    if len(pair) < 2:
        return
    different_choices = [
        f"{dimension.path} {' against '.join(format_chosen(arm, dimension.path) for arm in pair)}"
        for dimension in plan.arm(verdict.arm).space.dimensions
        if _have_different_choices(dimension, *(chosen_values(arm, dimension.path) for arm in pair))
    ]
    if different_choices:
        choices_text = _join_listed(different_choices)
        text = f"{verdict.arm} against {verdict.reference} in {verdict.metric}: {choices_text}"
        yield ReportWarning("chosen-differently", verdict.arm, verdict.metric, text)


def _have_different_choices(dimension: Dimension, first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Return whether the choices of two arms do not overlap; in a range they must also be far apart."""
    if not first or not second:
        return False
    if isinstance(dimension.domain, Choice | Fixed):
        return not any(are_equal(*pair) for pair in product(first, second))
    positions = ([relative_position(dimension, value) for value in values] for values in (first, second))
    low, high = sorted(positions, key=min)
    return max(low) < min(high) and median(high) - median(low) >= MIN_CHOICE_DISTANCE


def _changed_fields(changes: ArmChanges) -> list[str]:
    """Return the fields that an arm changes; a change of model or task counts as one field.

    Another model or task has other fields, which do not count as further changes.
    """
    paths = [change.path for change in changes.changes]
    parts = [path.removesuffix(".name") for path in paths if path.endswith(".name")]
    fields = (next((part for part in parts if path.startswith(f"{part}.")), path) for path in paths)
    return list(dict.fromkeys(fields))


def _one_finished_trial_warnings(plan: Plan, records: Sequence[Record]) -> Iterator[ReportWarning]:
    """Yield a warning for each search that has ended with only one finished trial of several planned."""
    planned_counts = Counter((trial.arm, trial.repeat) for trial in plan.trials if trial.phase == SEARCH)
    num_ended, num_finished = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for record in records:
        if record.phase == SEARCH and record.outcome is not None:
            num_ended[record.arm, record.repeat] += record.outcome.is_final
            num_finished[record.arm, record.repeat] += record.outcome is OutcomeKind.FINISHED
    for (arm, repeat), num_planned in planned_counts.items():
        if num_planned > 1 and num_finished[arm, repeat] == 1 and num_ended[arm, repeat] >= num_planned:
            arm_text = f"{arm}, repeat {repeat}" if plan.repeats > 1 else arm
            yield ReportWarning(
                "one-finished-trial", arm, "", f"{arm_text} (1 of {amount(num_planned, 'trial')})"
            )


def _floor_warnings(report: Report) -> Iterator[ReportWarning]:
    """Yield a warning for each arm whose primary outcome is at the floor, or worse, in all seeds."""
    pairs_with_metric = (((verdict.reference, verdict.arm), verdict.metric) for verdict in report.verdicts)
    for arm, metric in dict.fromkeys((arm, metric) for pair, metric in pairs_with_metric for arm in pair):
        cell, floor, quantity = report.cell(arm, metric), report.floor(arm, metric), report.quantity(metric)
        best = quantity.low if quantity.better == "min" else quantity.high
        if cell is None or floor is None or best is None or best == floor:
            continue
        values = [value for _, value in cell.by_seed]
        if values and all((value - floor) / (best - floor) <= MAX_FLOOR_SHARE for value in values):
            mean = format_number(cell.estimate.mean)
            text = f"{arm} in {metric} ({mean}; {quantity.floor_name}: {format_number(floor)})"
            yield ReportWarning("at-floor", arm, metric, text)


def _join_listed(texts: Sequence[str], separator: str = ", ") -> str:
    num_omitted = len(texts) - MAX_LISTED
    return separator.join([*texts[:MAX_LISTED], *([f"{num_omitted} more"] if num_omitted > 0 else [])])
