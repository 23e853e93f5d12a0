"""Arms at the cost of what they are compared with, and settings of one arm against each other. Pure.

A confirmed checkpoint that was read again under other settings, say thresholds of halting or more layers than
in training, gives each seed several readings of cost and outcome. Between the two that lie next to the
reference's own cost with the same seed the outcome is interpolated in a straight line, one field of settings
at a time. Nothing is extrapolated: where a seed's readings do not reach that cost there is no value, and no
estimate unless all seeds have one, for those that reach it may be the good ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from orchestrator.identity import canonical
from orchestrator.plan.display.format import setting_words
from orchestrator.plan.types import Plan
from orchestrator.report.results.readings import Readings, difference_of
from orchestrator.report.results.statistics import Estimate, estimate
from orchestrator.statistics.paired import minus
from orchestrator.trials import OutcomeKind, Record

Point = tuple[float, float]
"""A cost and the outcome at it."""


@dataclass(frozen=True, slots=True)
class EqualCost:
    """An arm against its reference at the cost of the reference; exploratory."""

    arm: str
    reference: str
    outcome: str
    cost: str
    """The quantity of which both spend the same, `<split>/<quantity>`."""
    path: str
    """The field whose readings are interpolated; empty where the arm was read under no other setting."""
    own_cost: float
    """Mean of the arm as trained."""
    cost_of_reference: float
    """Mean of the reference as trained."""
    reached: int
    """Seeds, or repeats, whose readings reach the cost of the reference with the same seed."""
    seeds: int
    """With those that failed as trained, in the arm or its reference."""
    as_trained: Estimate
    """Difference, paired by seed."""
    equal: Estimate | None
    """Difference at equal cost; None unless all seeds reach it."""


@dataclass(frozen=True, slots=True)
class SettingEffect:
    """An arm read again under one setting, minus the same arm as trained; exploratory."""

    arm: str
    setting: str
    metric: str
    estimate: Estimate
    """Paired by seed."""


def interpolated(points: Sequence[Point], cost: float) -> float | None:
    """The outcome at `cost` on straight lines between neighbouring points; None beyond the outermost.

    Points of one cost count as their mean.
    """
    found = defaultdict(list)
    for at, value in points:
        found[at].append(value)
    line = sorted((at, fmean(values)) for at, values in found.items())
    if len(line) == 1 and line[0][0] == cost:
        return line[0][1]
    for (low, below), (high, above) in pairwise(line):
        if low <= cost <= high:
            share = (cost - low) / (high - low)
            return below * (1 - share) + above * share
    return None


def compared(
    plan: Plan, outcomes: Sequence[str], trained: Readings, again: Sequence[Record]
) -> Iterator[EqualCost]:
    """Every arm at its reference's cost, by outcome, declared cost and field that was read again."""
    for outcome in outcomes if plan.posthoc else ():
        for cost in trained.costs_of(outcome):
            for arm in plan.arms:
                if arm.reference:
                    found = _of_arm(
                        arm.name, arm.reference, outcome=outcome, cost=cost, trained=trained, again=again
                    )
                    yield from found


def _of_arm(
    arm: str, reference: str, *, outcome: str, cost: str, trained: Readings, again: Sequence[Record]
) -> Iterator[EqualCost]:
    own, theirs = _points(arm, outcome, cost, trained), _points(reference, outcome, cost, trained)
    shared = _in_whole_units((seed for seed in own if seed in theirs), trained)
    known_of, known_to = (_of_best(each, outcome, trained) for each in (arm, reference))
    # A seed that did not say its cost counts too: it may be the one that spent most.
    paired = _in_whole_units((seed for seed in known_of if seed in known_to), trained)
    seeds = {*paired, *trained.failed_seeds(arm), *trained.failed_seeds(reference)}
    paths = dict.fromkeys(path for each in again if each.arm == arm for path in each.overrides)
    for path in (paths or {"": None}) if shared else ():
        curves = {seed: [own[seed]] for seed in shared}
        for record in again:
            if record.arm == arm and [*record.overrides] == [path] and record.seed in curves:
                curves[record.seed] += _point(record, outcome, cost)
        at_cost = {seed: interpolated(curves[seed], theirs[seed][0]) for seed in shared}
        known = {seed: value for seed, value in at_cost.items() if value is not None}
        all_known = len(known) == len(seeds)
        span = trained.span_of_difference(outcome, arm, reference)
        yield EqualCost(
            arm=arm,
            reference=reference,
            outcome=outcome,
            cost=cost,
            path=path,
            own_cost=fmean(own[seed][0] for seed in shared),
            cost_of_reference=fmean(theirs[seed][0] for seed in shared),
            reached=len(trained.whole({*known})),
            seeds=len({*map(trained.unit_of, seeds)}),
            as_trained=_estimate(
                {seed: minus(known_of[seed], known_to[seed]) for seed in paired}, trained, span
            ),
            equal=_estimate({seed: minus(known[seed], theirs[seed][1]) for seed in shared}, trained, span)
            if all_known
            else None,
        )


def _in_whole_units(seeds: Iterable[int], trained: Readings) -> list[int]:
    """Return those of `seeds` whose independent observation has all of its seeds among them."""
    known = [*seeds]
    whole = trained.whole({*known})
    return [seed for seed in known if trained.unit_of(seed) in whole]


def _estimate(by_seed: Mapping[int, float], trained: Readings, span: tuple[float, float]) -> Estimate:
    return estimate([*trained.by_unit(by_seed).values()], span=span)


def setting_effects(
    plan: Plan, metrics: Sequence[str], trained: Readings, again: Sequence[Record]
) -> Iterator[SettingEffect]:
    """Every setting against as trained, by arm and metric, seeds and ranks paired."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in again:
        groups[record.arm, canonical(dict(record.overrides))].append(record)
    for arm in plan.arms:
        for overrides in plan.posthoc:
            records = groups.get((arm.name, canonical(dict(overrides))), [])
            setting = setting_words(overrides)
            found = Readings(records, trained.declared)
            for metric in metrics:
                before, after = trained.by_seed(arm.name, metric), found.by_seed(arm.name, metric)
                pairs: Mapping[int, list[float]] = defaultdict(list)
                for key in after:
                    if key in before:
                        pairs[key[1]].append(minus(after[key][0], before[key][0]))
                units = trained.by_unit({seed: fmean(each) for seed, each in pairs.items()})
                if units:
                    span = difference_of(found.span(metric, arm.name), trained.span(metric, arm.name))
                    yield SettingEffect(arm.name, setting, metric, estimate([*units.values()], span=span))


def _points(arm: str, outcome: str, cost: str, trained: Readings) -> dict[int, Point]:
    """By seed, the arm's best assignment as trained."""
    costs, values = (_of_best(arm, metric, trained) for metric in (cost, outcome))
    return {seed: (costs[seed], value) for seed, value in values.items() if seed in costs}


def _of_best(arm: str, metric: str, trained: Readings) -> dict[int, float]:
    """By seed, what the arm's best assignment measured."""
    return {seed: value for (rank, seed), (value, _) in trained.by_seed(arm, metric).items() if rank == 0}


def _point(record: Record, outcome: str, cost: str) -> list[Point]:
    """One, or none where the reading failed or lacks one of both."""
    metrics = record.last.metrics if record.last is not None else {}
    usable = record.outcome is OutcomeKind.FINISHED and not record.rank
    return [(metrics[cost], metrics[outcome])] if usable and cost in metrics and outcome in metrics else []
