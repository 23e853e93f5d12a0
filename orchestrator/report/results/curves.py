"""Compute learning curves of confirm trials: mean and range over seeds, and each failed seed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from orchestrator.plan.answer import metric_splits
from orchestrator.plan.types import Plan
from orchestrator.report.results.seed_results import MeasurementsByTrial
from orchestrator.spec.metric_splits import SELECTION_SPLIT
from orchestrator.trials import OutcomeKind, Record, by_arm
from trainables.protocol import Measurement

MAX_POINTS = 150
"""Approximate maximum number of steps of a curve; of more steps, every k-th and the last are drawn."""
MAX_METRICS = 2
"""Maximum number of metrics with curves."""
T = TypeVar("T")
Line = tuple[tuple[int, float], ...]
"""Pairs of step and value."""


@dataclass(frozen=True, slots=True)
class ArmCurve:
    """Learning curve of one arm in one metric."""

    arm: str
    metric: str
    steps: tuple[int, ...]
    """Steps at which every finished seed was measured."""
    mean: tuple[float, ...]
    low: tuple[float, ...]
    """Value of the lowest seed at each step."""
    high: tuple[float, ...]
    seeds: int
    """Number of finished seeds."""
    failed: tuple[Line, ...]
    """Curves of the failed seeds up to their failure."""


def learning_curves(
    plan: Plan, records: Sequence[Record], measured: MeasurementsByTrial
) -> Iterator[ArmCurve]:
    """Yield the curves of every arm's best params, metric by metric."""
    best_records = [
        record
        for record in records
        if record.phase == "confirm" and not record.rank and record.trial_id in measured
    ]
    records_by_arm = by_arm(best_records)
    for metric in _curve_metrics(plan, [measured[record.trial_id] for record in best_records]):
        for arm in plan.arms:
            curve = _arm_curve(arm.name, metric, records_by_arm[arm.name], measured)
            if curve.steps or curve.failed:
                yield curve


def _arm_curve(arm: str, metric: str, records: Iterable[Record], measured: MeasurementsByTrial) -> ArmCurve:
    finished_lines: list[dict[int, float]] = []
    failed_lines: list[Line] = []
    for record in records:
        reports = [report for report in measured[record.trial_id] if metric in report.metrics]
        values = {report.step: report.metrics[metric] for report in reports}
        if values and record.outcome is OutcomeKind.FINISHED:
            finished_lines.append(values)
        elif values and record.outcome is not None and record.outcome.is_failure:
            failed_lines.append(tuple(_every_kth(sorted(values.items()))))
    shared_steps = sorted(set.intersection(*map(set, finished_lines))) if finished_lines else []
    steps = tuple(_every_kth(shared_steps))
    columns = [[values[step] for values in finished_lines] for step in steps]
    return ArmCurve(
        arm=arm,
        metric=metric,
        steps=steps,
        mean=tuple(map(fmean, columns)),
        low=tuple(map(min, columns)),
        high=tuple(map(max, columns)),
        seeds=len(finished_lines),
        failed=tuple(failed_lines),
    )


def _every_kth(values: Sequence[T]) -> Iterator[T]:
    stride = -(-len(values) // MAX_POINTS) or 1
    last = len(values) - 1
    yield from (value for place, value in enumerate(values) if place % stride == 0 or place == last)


def _curve_metrics(plan: Plan, reports_by_trial: Iterable[Sequence[Measurement]]) -> tuple[str, ...]:
    """Return the metrics with curves, in order of preference, among those measured at several steps.

    First the objectives, then declared headlines on the selection split, training losses, other metrics of
    the selection split, and metrics without a split.
    """
    num_steps = Counter[str]()
    for reports in reports_by_trial:
        num_steps |= Counter(name for report in reports for name in report.metrics)
    objective_names = [objective.metric for objective in plan.search.objectives] if plan.search else []
    splits_by_metric = metric_splits(plan.search, plan.confirm, plan.answer)
    headline_names = [
        f"{SELECTION_SPLIT}/{metric.name}" for metric in plan.metrics if "headline" in metric.shown
    ]
    minimised_names = [metric.name for metric in plan.metrics if metric.better == "min" and not metric.split]
    losses = [f"train/{name}" for name in minimised_names]
    selection = [name for name in num_steps if splits_by_metric.is_selection(name)]
    without_split = [name for name in num_steps if not splits_by_metric.split(name)]
    preferred = dict.fromkeys([*objective_names, *headline_names, *losses, *selection, *without_split])
    return tuple(name for name in preferred if num_steps[name] > 1)[:MAX_METRICS]
