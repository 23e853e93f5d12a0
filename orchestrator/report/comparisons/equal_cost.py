"""Compare arms with their references at equal cost, and settings of one arm with each other.

If a confirmed checkpoint is re-evaluated under other settings, such as halting thresholds or more layers than
in training, each seed has several pairs of cost and outcome. The outcome at the reference's cost with the
same seed is interpolated linearly between the two pairs next to that cost, one field of settings at a time.
Nothing is extrapolated: a seed whose evaluations do not reach that cost has no value. Unless all seeds have a
value there is no estimate, because the seeds that reach the cost may be the good ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from orchestrator.identity import canonical
from orchestrator.plan.display.format import setting_words
from orchestrator.plan.types import Plan
from orchestrator.report.results.seed_results import SeedResults, difference_range
from orchestrator.report.results.statistics import Estimate, estimate
from orchestrator.statistics.paired import subtract
from orchestrator.trials import OutcomeKind, Record

Point = tuple[float, float]
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


def interpolate(points: Sequence[Point], cost: float) -> float | None:
    """Return the outcome at `cost`, linearly interpolated between neighbouring points; None outside of them.

    Points of equal cost are averaged.
    """
    points_by_seed = defaultdict(list)
    for at, value in points:
        points_by_seed[at].append(value)
    line = sorted((at, fmean(values)) for at, values in points_by_seed.items())
    if len(line) == 1 and line[0][0] == cost:
        return line[0][1]
    for (low, below), (high, above) in pairwise(line):
        if low <= cost <= high:
            share = (cost - low) / (high - low)
            return below * (1 - share) + above * share
    return None


def equal_costs(
    plan: Plan, outcomes: Sequence[str], seed_results: SeedResults, reevaluations: Sequence[Record]
) -> Iterator[EqualCost]:
    """Yield every arm at its reference's cost, by outcome, declared cost and re-evaluated field."""
    for outcome in outcomes if plan.posthoc else ():
        for cost in seed_results.costs_of(outcome):
            for arm in plan.arms:
                if arm.reference:
                    arm_equal_costs = _equal_costs_of_arm(
                        arm.name,
                        arm.reference,
                        outcome=outcome,
                        cost=cost,
                        seed_results=seed_results,
                        reevaluations=reevaluations,
                    )
                    yield from arm_equal_costs


def _equal_costs_of_arm(
    arm: str,
    reference: str,
    *,
    outcome: str,
    cost: str,
    seed_results: SeedResults,
    reevaluations: Sequence[Record],
) -> Iterator[EqualCost]:
    own_points, reference_points = (
        _trained_points(arm, outcome, cost, seed_results),
        _trained_points(reference, outcome, cost, seed_results),
    )
    shared_seeds = _complete_unit_seeds(
        (seed for seed in own_points if seed in reference_points), seed_results
    )
    known_of, known_to = (
        _best_params_values(arm_name, outcome, seed_results) for arm_name in (arm, reference)
    )
    # A seed that reported no cost counts too, since it may have the greatest cost.
    paired_seeds = _complete_unit_seeds((seed for seed in known_of if seed in known_to), seed_results)
    seeds = {*paired_seeds, *seed_results.failed_seeds(arm), *seed_results.failed_seeds(reference)}
    paths = dict.fromkeys(path for record in reevaluations if record.arm == arm for path in record.overrides)
    for path in (paths or {"": None}) if shared_seeds else ():
        curves = {seed: [own_points[seed]] for seed in shared_seeds}
        for record in reevaluations:
            if record.arm == arm and [*record.overrides] == [path] and record.seed in curves:
                curves[record.seed] += _reevaluation_point(record, outcome, cost)
        at_cost = {seed: interpolate(curves[seed], reference_points[seed][0]) for seed in shared_seeds}
        known_values = {seed: value for seed, value in at_cost.items() if value is not None}
        all_known = len(known_values) == len(seeds)
        span = seed_results.span_of_difference(outcome, arm, reference)
        yield EqualCost(
            arm=arm,
            reference=reference,
            outcome=outcome,
            cost=cost,
            path=path,
            own_cost=fmean(own_points[seed][0] for seed in shared_seeds),
            cost_of_reference=fmean(reference_points[seed][0] for seed in shared_seeds),
            reached=len(seed_results.complete_units({*known_values})),
            seeds=len({*map(seed_results.unit_of, seeds)}),
            as_trained=_unit_estimate(
                {seed: subtract(known_of[seed], known_to[seed]) for seed in paired_seeds}, seed_results, span
            ),
            equal=_unit_estimate(
                {seed: subtract(known_values[seed], reference_points[seed][1]) for seed in shared_seeds},
                seed_results,
                span,
            )
            if all_known
            else None,
        )


def _complete_unit_seeds(seeds: Iterable[int], seed_results: SeedResults) -> list[int]:
    """Return the seeds of all independent observations whose seeds are completely in `seeds`."""
    known_seeds = [*seeds]
    complete_units = seed_results.complete_units({*known_seeds})
    return [seed for seed in known_seeds if seed_results.unit_of(seed) in complete_units]


def _unit_estimate(
    by_seed: Mapping[int, float], seed_results: SeedResults, span: tuple[float, float]
) -> Estimate:
    return estimate([*seed_results.by_unit(by_seed).values()], span=span)


def setting_effects(
    plan: Plan, metrics: Sequence[str], seed_results: SeedResults, reevaluations: Sequence[Record]
) -> Iterator[SettingEffect]:
    """Yield the effect of every setting by arm and metric; values are paired by seed and rank."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in reevaluations:
        groups[record.arm, canonical(dict(record.overrides))].append(record)
    for arm in plan.arms:
        for overrides in plan.posthoc:
            records = groups.get((arm.name, canonical(dict(overrides))), [])
            setting = setting_words(overrides)
            reevaluated = SeedResults(records, seed_results.declared_metrics)
            for metric in metrics:
                values_before, values_after = (
                    seed_results.by_seed(arm.name, metric),
                    reevaluated.by_seed(arm.name, metric),
                )
                pairs: Mapping[int, list[float]] = defaultdict(list)
                for key in values_after:
                    if key in values_before:
                        pairs[key[1]].append(subtract(values_after[key][0], values_before[key][0]))
                units = seed_results.by_unit(
                    {seed: fmean(differences) for seed, differences in pairs.items()}
                )
                if units:
                    span = difference_range(
                        reevaluated.span(metric, arm.name), seed_results.span(metric, arm.name)
                    )
                    yield SettingEffect(arm.name, setting, metric, estimate([*units.values()], span=span))


def _trained_points(arm: str, outcome: str, cost: str, seed_results: SeedResults) -> dict[int, Point]:
    """Return cost and outcome of the arm's best params as trained, by seed."""
    costs, values = (_best_params_values(arm, metric, seed_results) for metric in (cost, outcome))
    return {seed: (costs[seed], value) for seed, value in values.items() if seed in costs}


def _best_params_values(arm: str, metric: str, seed_results: SeedResults) -> dict[int, float]:
    """Return the values of the arm's best params by seed."""
    return {
        seed: value for (rank, seed), (value, _) in seed_results.by_seed(arm, metric).items() if rank == 0
    }


def _reevaluation_point(record: Record, outcome: str, cost: str) -> list[Point]:
    """Return the point of a re-evaluation; empty if it failed or lacks the cost or the outcome."""
    metrics = record.last.metrics if record.last is not None else {}
    usable = record.outcome is OutcomeKind.FINISHED and not record.rank
    return [(metrics[cost], metrics[outcome])] if usable and cost in metrics and outcome in metrics else []
