"""Compute learning curves of confirm trials: mean and range over seeds, and each failed seed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from orchestrator.plan.answer import metric_splits
from orchestrator.plan.types import Plan
from orchestrator.spec.metric_splits import SELECTION_SPLIT
from orchestrator.trials import OutcomeKind, Record, by_arm
from trainables.protocol import Measurement

POINTS = 150
"""Approximate maximum of steps of a curve: of more, every k-th is drawn, and the last."""
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
    plan: Plan, records: Sequence[Record], measurements_by_trial: Mapping[str, Sequence[Measurement]]
) -> Iterator[ArmCurve]:
    """Yield the curves of every arm's best params, metric by metric.

    Args:
        plan: Plan of the sweep.
        records: Records of trials.
        measurements_by_trial: Measurements by trial id, in the order of steps.
    """
    arm_records = [
        record
        for record in records
        if record.phase == "confirm" and not record.rank and record.trial_id in measurements_by_trial
    ]
    of_arms = by_arm(arm_records)
    for metric in _curve_metrics(plan, arm_records, measurements_by_trial):
        for arm in plan.arms:
            curve = _arm_curve(arm.name, metric, of_arms[arm.name], measurements_by_trial)
            if curve.steps or curve.failed:
                yield curve


def _arm_curve(
    arm: str,
    metric: str,
    records: Iterable[Record],
    measurements_by_trial: Mapping[str, Sequence[Measurement]],
) -> ArmCurve:
    finished_lines: list[dict[int, float]] = []
    failed_lines: list[Line] = []
    for record in records:
        values = {
            measurement.step: measurement.metrics[metric]
            for measurement in measurements_by_trial[record.trial_id]
            if metric in measurement.metrics
        }
        if values and record.outcome is OutcomeKind.FINISHED:
            finished_lines.append(values)
        elif values and record.outcome is not None and record.outcome.failed:
            failed_lines.append(tuple(_every_kth(sorted(values.items()))))
    shared_steps = sorted(set.intersection(*map(set, finished_lines))) if finished_lines else []
    steps = list(_every_kth(shared_steps))
    columns = [[values[step] for values in finished_lines] for step in steps]
    return ArmCurve(
        arm=arm,
        metric=metric,
        steps=tuple(steps),
        mean=tuple(map(fmean, columns)),
        low=tuple(map(min, columns)),
        high=tuple(map(max, columns)),
        seeds=len(finished_lines),
        failed=tuple(failed_lines),
    )


def _every_kth(values: Sequence[T]) -> Iterator[T]:
    stride = -(-len(values) // POINTS) or 1
    last = len(values) - 1
    yield from (value for place, value in enumerate(values) if place % stride == 0 or place == last)


def _curve_metrics(
    plan: Plan, records: Iterable[Record], measurements_by_trial: Mapping[str, Sequence[Measurement]]
) -> tuple[str, ...]:
    """Return the metrics with curves, in order of preference, among those measured at several steps.

    First the objectives, then declared headlines on the selection split, training losses, other metrics of
    the selection split, and metrics without a split.
    """
    counted: dict[str, int] = {}
    for record in records:
        steps: dict[str, int] = {}
        for measurement in measurements_by_trial[record.trial_id]:
            for name in measurement.metrics:
                steps[name] = steps.get(name, 0) + 1
        for name, count in steps.items():
            counted[name] = max(count, counted.get(name, 0))
    aims = [objective.metric for objective in plan.search.objectives] if plan.search else []
    names = metric_splits(plan.search, plan.confirm, plan.answer)
    judged = [f"{SELECTION_SPLIT}/{metric.name}" for metric in plan.metrics if "headline" in metric.shown]
    losses = [
        f"train/{metric.name}" for metric in plan.metrics if metric.better == "min" and not metric.split
    ]
    selection = [name for name in counted if names.is_selection(name)]
    without_split = [name for name in counted if not names.split(name)]
    chosen_metrics = dict.fromkeys([*aims, *judged, *losses, *selection, *without_split])
    return tuple(name for name in chosen_metrics if counted.get(name, 0) > 1)[:MAX_METRICS]
