"""Compute outcomes against costs, as trained and under settings that were changed after training."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from orchestrator.plan.display.format import setting_words
from orchestrator.plan.types import Plan
from orchestrator.report.comparisons.equal_cost import results_by_setting
from orchestrator.report.results.seed_results import SeedResults
from orchestrator.trials import Record


@dataclass(frozen=True, slots=True)
class CostPoint:
    """Mean cost and mean outcome over the seeds that have both."""

    setting: str
    """Empty as trained."""
    cost: float
    value: float
    seeds: int


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Cost and outcome of an arm's best params on one split, as trained and re-evaluated."""

    arm: str
    outcome: str
    cost: str
    path: str
    """The field that was changed after training; empty if there is none."""
    points: tuple[CostPoint, ...]
    """The point as trained first."""


def cost_curves(
    plan: Plan, outcomes: Sequence[str], results: SeedResults, reevaluations: Sequence[Record]
) -> Iterator[CostCurve]:
    """Yield the curves of every arm by outcome, declared cost and re-evaluated field."""
    reevaluated = results_by_setting(reevaluations, results)
    metrics = [(outcome, cost) for outcome in outcomes for cost in results.costs_of(outcome)]
    for (outcome, cost), arm in product(metrics, plan.arms):
        as_trained = _cost_point("", arm.name, outcome, cost, results)
        if as_trained is None:
            continue
        by_path: dict[str, list[CostPoint]] = defaultdict(list)
        for overrides in plan.posthoc:
            setting_results = reevaluated(arm.name, overrides)
            point = _cost_point(setting_words(overrides), arm.name, outcome, cost, setting_results)
            if point is not None and len(overrides) == 1:
                by_path[next(iter(overrides))].append(point)
        for path, points in (by_path or {"": []}).items():
            yield CostCurve(arm.name, outcome, cost, path, (as_trained, *points))


def _cost_point(setting: str, arm: str, outcome: str, cost: str, results: SeedResults) -> CostPoint | None:
    costs, values = results.by_seed(arm, cost), results.by_seed(arm, outcome)
    shared_keys = [key for key in values if key in costs and key[0] == 0]
    if not shared_keys:
        return None
    mean_cost, mean_value = (fmean(metric[key][0] for key in shared_keys) for metric in (costs, values))
    return CostPoint(setting, mean_cost, mean_value, len(shared_keys))
