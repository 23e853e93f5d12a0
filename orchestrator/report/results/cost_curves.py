"""Compute outcomes against costs, as trained and under settings that were changed after training."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.identity import canonical
from orchestrator.plan.display.format import setting_words
from orchestrator.plan.types import Plan
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
    plan: Plan, outcomes: Sequence[str], seed_results: SeedResults, reevaluations: Sequence[Record]
) -> Iterator[CostCurve]:
    """Yield the curves of every arm by outcome, declared cost and re-evaluated field."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in reevaluations:
        groups[record.arm, canonical(dict(record.overrides))].append(record)
    for outcome in outcomes:
        for cost in seed_results.costs_of(outcome):
            for arm in plan.arms:
                own_point = _cost_point("", arm.name, outcome, cost, seed_results)
                if own_point is None:
                    continue
                by_path: dict[str, list[CostPoint]] = defaultdict(list)
                for overrides in plan.posthoc:
                    records = groups.get((arm.name, canonical(dict(overrides))), [])
                    words = setting_words(overrides)
                    cost_point = _cost_point(
                        words, arm.name, outcome, cost, SeedResults(records, seed_results.declared_metrics)
                    )
                    if cost_point is not None and len(overrides) == 1:
                        by_path[next(iter(overrides))].append(cost_point)
                for path, points in (by_path or {"": []}).items():
                    yield CostCurve(arm.name, outcome, cost, path, (own_point, *points))


def _cost_point(setting: str, arm: str, outcome: str, cost: str, results: SeedResults) -> CostPoint | None:
    costs, values = results.by_seed(arm, cost), results.by_seed(arm, outcome)
    shared_keys = [key for key in values if key in costs and key[0] == 0]
    if not shared_keys:
        return None
    return CostPoint(
        setting,
        fmean(costs[key][0] for key in shared_keys),
        fmean(values[key][0] for key in shared_keys),
        len(shared_keys),
    )
