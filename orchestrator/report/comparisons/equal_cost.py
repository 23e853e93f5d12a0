"""Compare arms with their references at equal cost, and settings of one arm with each other.

If a confirmed checkpoint is re-evaluated under other settings, such as halting thresholds or more layers than
in training, each seed has several pairs of cost and outcome. The outcome at the reference's cost with the
same seed is interpolated linearly between the two pairs next to that cost, one field of settings at a time.
Nothing is extrapolated: a seed whose evaluations do not reach that cost has no value. Unless all seeds have a
value there is no estimate, because the seeds that reach the cost may be the good ones.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product
from statistics import fmean

from orchestrator.identity import canonical
from orchestrator.plan.display.format import setting_words
from orchestrator.plan.types import Plan
from orchestrator.report.results.seed_results import SeedResults, difference_range, mean_by_seed
from orchestrator.report.results.statistics import Estimate, estimate
from orchestrator.statistics.paired import subtract
from orchestrator.trials import OutcomeKind, Record
from search_spaces.dimensions import Value

CostOutcome = tuple[float, float]
"""A cost and the outcome at this cost."""


@dataclass(frozen=True, slots=True)
class EqualCost:
    """Exploratory difference of an arm to its reference at the cost of the reference."""

    arm: str
    reference: str
    outcome: str
    cost: str
    """Name of the cost, `<split>/<quantity>`."""
    path: str
    """Field that the re-evaluations vary; empty if the arm was evaluated under no other settings."""
    own_cost: float
    """Mean cost of the arm as trained."""
    cost_of_reference: float
    """Mean cost of the reference as trained."""
    reached: int
    """Number of seeds, or repeats, whose evaluations reach the cost of the reference with the same seed."""
    seeds: int
    """Number of seeds, or repeats, including those that failed in the arm or its reference."""
    as_trained: Estimate
    """Difference as trained, paired by seed."""
    equal: Estimate | None
    """Difference at equal cost; None unless all seeds reach it."""


@dataclass(frozen=True, slots=True)
class SettingEffect:
    """Exploratory difference of an arm under another setting to the same arm as trained."""

    arm: str
    setting: str
    metric: str
    estimate: Estimate
    """Difference paired by seed."""


def interpolate(points: Sequence[CostOutcome], cost: float) -> float | None:
    """Return the outcome at `cost`, linearly interpolated between neighbouring points; None outside of them.

    Points of equal cost are averaged.
    """
    values_by_cost = defaultdict(list)
    for point_cost, value in points:
        values_by_cost[point_cost].append(value)
    line = sorted((point_cost, fmean(values)) for point_cost, values in values_by_cost.items())
    if len(line) == 1 and line[0][0] == cost:
        return line[0][1]
    for (low, low_value), (high, high_value) in pairwise(line):
        if low <= cost <= high:
            weight = (cost - low) / (high - low)
            return low_value * (1 - weight) + high_value * weight
    return None


def equal_costs(
    plan: Plan, outcomes: Sequence[str], results: SeedResults, reevaluations: Sequence[Record]
) -> Iterator[EqualCost]:
    """Yield every arm at its reference's cost, by outcome, declared cost and re-evaluated field."""
    pairs = [(arm.name, arm.reference) for arm in plan.arms if arm.reference]
    for outcome in outcomes if plan.posthoc else ():
        for cost, pair in product(results.costs_of(outcome), pairs):
            yield from _equal_costs_of_arm(pair, outcome, cost, results, reevaluations)


def _equal_costs_of_arm(
    pair: tuple[str, str], outcome: str, cost: str, results: SeedResults, reevaluations: Sequence[Record]
) -> Iterator[EqualCost]:
    arm, reference = pair
    own_points, reference_points = (_points_as_trained(name, outcome, cost, results) for name in pair)
    shared_seeds = _complete_unit_seeds(own_points, reference_points, results)
    if not shared_seeds:
        return
    own_values, reference_values = (_best_params_values(name, outcome, results) for name in pair)
    # A seed that reported no cost counts too, since it may have the greatest cost.
    paired_seeds = _complete_unit_seeds(own_values, reference_values, results)
    seeds = {*paired_seeds, *results.failed_seeds(arm), *results.failed_seeds(reference)}
    arm_records = [record for record in reevaluations if record.arm == arm]
    paths = dict.fromkeys(path for record in arm_records for path in record.overrides)
    span = results.span_of_difference(outcome, arm, reference)
    trained_differences = {seed: subtract(own_values[seed], reference_values[seed]) for seed in paired_seeds}
    for path in paths or {"": None}:
        curves = {seed: [own_points[seed]] for seed in shared_seeds}
        for record in arm_records:
            if [*record.overrides] == [path] and record.seed in curves:
                curves[record.seed] += _reevaluation_point(record, outcome, cost)
        equal_cost_differences: dict[int, float] = {}
        for seed, points in curves.items():
            reference_cost, reference_value = reference_points[seed]
            if (value := interpolate(points, reference_cost)) is not None:
                equal_cost_differences[seed] = subtract(value, reference_value)
        yield EqualCost(
            arm=arm,
            reference=reference,
            outcome=outcome,
            cost=cost,
            path=path,
            own_cost=fmean(own_points[seed][0] for seed in shared_seeds),
            cost_of_reference=fmean(reference_points[seed][0] for seed in shared_seeds),
            reached=len(results.complete_units({*equal_cost_differences})),
            seeds=len({*map(results.unit_of, seeds)}),
            as_trained=estimate([*results.by_unit(trained_differences).values()], span=span),
            equal=estimate([*results.by_unit(equal_cost_differences).values()], span=span)
            if len(equal_cost_differences) == len(seeds)
            else None,
        )


def _complete_unit_seeds(
    first: Mapping[int, object], second: Mapping[int, object], results: SeedResults
) -> list[int]:
    """Return the common seeds of independent observations of which both mappings have all seeds."""
    common_seeds = [seed for seed in first if seed in second]
    complete_units = results.complete_units({*common_seeds})
    return [seed for seed in common_seeds if results.unit_of(seed) in complete_units]


def setting_effects(
    plan: Plan, metrics: Sequence[str], results: SeedResults, reevaluations: Sequence[Record]
) -> Iterator[SettingEffect]:
    """Yield the effect of every setting by arm and metric; values are paired by seed and rank."""
    reevaluated = results_by_setting(reevaluations, results)
    for arm, overrides, metric in product(plan.arms, plan.posthoc, metrics):
        setting_results = reevaluated(arm.name, overrides)
        trained_values, setting_values = (
            results.by_seed(arm.name, metric),
            setting_results.by_seed(arm.name, metric),
        )
        differences = {
            key: (subtract(setting_values[key][0], trained_values[key][0]), "")
            for key in setting_values
            if key in trained_values
        }
        if units := results.by_unit(mean_by_seed(differences)):
            span = difference_range(
                setting_results.value_range(metric, arm.name), results.value_range(metric, arm.name)
            )
            mean_difference = estimate([*units.values()], span=span)
            yield SettingEffect(arm.name, setting_words(overrides), metric, mean_difference)


def results_by_setting(
    reevaluations: Iterable[Record], results: SeedResults
) -> Callable[[str, Mapping[str, Value]], SeedResults]:
    """Return a function that returns the results of an arm under changed settings."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in reevaluations:
        groups[record.arm, canonical(dict(record.overrides))].append(record)

    @cache
    def results_of_key(arm: str, overrides: str) -> SeedResults:
        return SeedResults(groups[arm, overrides], results.declared_metrics)

    return lambda arm, overrides: results_of_key(arm, canonical(dict(overrides)))


def _points_as_trained(arm: str, outcome: str, cost: str, results: SeedResults) -> dict[int, CostOutcome]:
    """Return cost and outcome of the arm's best params as trained, by seed."""
    costs, values = (_best_params_values(arm, metric, results) for metric in (cost, outcome))
    return {seed: (costs[seed], value) for seed, value in values.items() if seed in costs}


def _best_params_values(arm: str, metric: str, results: SeedResults) -> dict[int, float]:
    """Return the values of the arm's best params by seed."""
    return {seed: value for (rank, seed), (value, _) in results.by_seed(arm, metric).items() if rank == 0}


def _reevaluation_point(record: Record, outcome: str, cost: str) -> list[CostOutcome]:
    """Return the point of a re-evaluation; empty if it failed or lacks the cost or the outcome."""
    metrics = record.last.metrics if record.last is not None else {}
    is_usable = record.outcome is OutcomeKind.FINISHED and not record.rank
    return [(metrics[cost], metrics[outcome])] if is_usable and cost in metrics and outcome in metrics else []
