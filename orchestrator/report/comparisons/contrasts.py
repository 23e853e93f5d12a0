"""Compute and test differences of arms to their references in primary outcomes, by context."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from typing import Any

from orchestrator.plan.answer import better_direction
from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.report.comparisons.failed_seeds import difference_bounds
from orchestrator.report.results.seed_results import SeedResults, ValuesBySeed, mean_by_seed
from orchestrator.spec.scalars import assignments
from orchestrator.statistics.missing import verdict_despite_missing
from orchestrator.statistics.paired import Key, PairedEstimate, compare, resolution, subtract


@dataclass(frozen=True, slots=True)
class Contrast:
    """An arm minus its reference, or the mean of this difference over all contexts."""

    arm: str
    """Name of the arm; without the values of a context if the contrast is over all contexts."""
    reference: str
    pairs: tuple[tuple[str, str], ...]
    """Names of arm and reference, one pair for each context."""
    contexts: tuple[str, ...] = ()
    """Names of the contexts; empty for an arm of one context."""

    @property
    def arms(self) -> tuple[str, ...]:
        """Return all arms and references of the contrast."""
        return tuple(name for pair in self.pairs for name in pair)


@dataclass(frozen=True, slots=True)
class ContrastGroup:
    """Contrasts with comparable variances: those of one context, or those over all contexts."""

    contrasts: tuple[Contrast, ...]
    contexts: tuple[tuple[str, ...], ...]
    """Names of arms, by context."""


def contrast_groups(plan: Plan, answer: AnswerPlan) -> Iterator[ContrastGroup]:
    """Yield one group for each context, and one over all contexts if `answer` asks for it."""
    contexts = tuple(tuple(arm.name for arm in arms) for arms in plan.contexts)
    for arms, names in zip(plan.contexts, contexts, strict=True):
        pairs = ((arm.name, arm.reference) for arm in arms if arm.reference and not arm.control)
        yield ContrastGroup(tuple(Contrast(*pair, pairs=(pair,)) for pair in pairs), (names,))
    if answer.pooled:
        yield ContrastGroup(tuple(_pooled_contrasts(plan)), contexts)


def _pooled_contrasts(plan: Plan) -> Iterator[Contrast]:
    for name, arms in plan.pools.items():
        yield Contrast(
            name,
            plan.arm(arms[0].reference).name_in_context,
            tuple((arm.name, arm.reference) for arm in arms),
            tuple(assignments(arm.context) for arm in arms),
        )


@dataclass(frozen=True, slots=True)
class PairedSeeds:
    """A contrast measured by one metric."""

    record_ids: tuple[tuple[str, str], ...]
    by_unit: Mapping[int, float]
    """Difference by seed, or by repeat, averaged over contexts; only those with values in all contexts."""


def outcome_goal(plan: Plan, answer: AnswerPlan, metric: str, results: SeedResults) -> dict[str, Any]:
    """Return the margin of an outcome and which values of it are good, as arguments of `verdict`."""
    margin = answer.margin if metric == answer.outcomes[0] else None
    return {"margin": margin, "better": better_direction(results.known(metric), metric, plan.search)}


def paired_seeds(pairs: Sequence[tuple[str, str]], metric: str, results: SeedResults) -> PairedSeeds:
    """Return differences by seed, averaged over `pairs` of arm and reference.

    Only seeds with values in all pairs are included.
    """
    records: list[tuple[str, str]] = []
    sides: list[Mapping[int, float]] = []
    for arm, reference in pairs:
        own_values, reference_values = results.by_seed(arm, metric), results.by_seed(reference, metric)
        shared_keys = [key for key in own_values if key in reference_values]
        differences: ValuesBySeed = {
            key: (subtract(own_values[key][0], reference_values[key][0]), "") for key in shared_keys
        }
        records += [(own_values[key][1], reference_values[key][1]) for key in shared_keys]
        sides.append(mean_by_seed(differences))
    first, *other_sides = sides
    in_all = [seed for seed in first if all(seed in values for values in other_sides)]
    by_seed = {seed: fmean(values[seed] for values in sides) for seed in in_all}
    return PairedSeeds(tuple(records), results.by_unit(by_seed))


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Tests of all contrasts of a plan in its primary outcomes."""

    plan: Plan
    answer: AnswerPlan
    results: SeedResults
    to_run: Mapping[str, set[int]]
    """Seeds by arm that have not ended."""

    def primary(self) -> dict[Key, PairedEstimate]:
        """Return estimates and tests by arm and outcome, corrected for the full family.

        Variances and resolutions differ between contexts, so bounds come from the same context. If seeds
        failed, the result is one that holds for all values that they could have had, if such a result exists.
        """
        groups = [*contrast_groups(self.plan, self.answer)]
        differences_of_groups = [
            _unit_differences(group, self.answer.outcomes, self.results) for group in groups
        ]
        family = max(self.answer.family, sum(map(len, differences_of_groups)))
        estimates: dict[Key, PairedEstimate] = {}
        for group, differences in zip(groups, differences_of_groups, strict=True):
            estimates |= self._compare_group(group, differences, family)
        return estimates

    def alone(self, contrast: Contrast, metric: str) -> PairedEstimate | None:
        """Return the uncorrected test of one contrast; None without a difference."""
        names = next(arms for arms in self.plan.contexts if contrast.arm in {arm.name for arm in arms})
        group = ContrastGroup((contrast,), (tuple(arm.name for arm in names),))
        differences = _unit_differences(group, (metric,), self.results)
        return self._compare_group(group, differences, 1).get((contrast.arm, metric))

    def _compare_group(
        self, group: ContrastGroup, differences: Mapping[Key, Mapping[int, float]], family: int
    ) -> dict[Key, PairedEstimate]:
        def compare_all(
            values_by_key: Mapping[Key, Mapping[int, float]], *, moderated: bool = False
        ) -> dict[Key, PairedEstimate]:
            answer = replace(self.answer, moderated=moderated)
            return _compare_group(group, values_by_key, self.results, family, answer)

        estimates = compare_all(differences, moderated=self.answer.moderated)
        contrasts = {contrast.arm: contrast for contrast in group.contrasts}
        for key in [*estimates]:
            contrast, metric = contrasts[key[0]], key[1]
            if any(self.to_run.get(arm) for arm in contrast.arms):
                continue
            bounds = difference_bounds(contrast.pairs, metric, self.results)
            if bounds:
                goal = outcome_goal(self.plan, self.answer, metric, self.results)
                estimates[key] = verdict_despite_missing(
                    estimates[key], bounds, _comparison_with_missing(compare_all, differences, key), **goal
                )
        return estimates


def _comparison_with_missing(
    compare_all: Callable[[Mapping[Key, Mapping[int, float]]], Mapping[Key, PairedEstimate]],
    differences: Mapping[Key, Mapping[int, float]],
    key: Key,
) -> Callable[[Mapping[int, float]], PairedEstimate]:
    """Return a function that tests `key` again with given differences for the units without a value."""

    def compare_with(baseline_values: Mapping[int, float]) -> PairedEstimate:
        return compare_all({**differences, key: {**differences[key], **baseline_values}})[key]

    return compare_with


def _unit_differences(
    group: ContrastGroup, outcomes: Sequence[str], results: SeedResults
) -> dict[Key, Mapping[int, float]]:
    return {
        (contrast.arm, metric): by_unit
        for metric, contrast in product(outcomes, group.contrasts)
        if (by_unit := paired_seeds(contrast.pairs, metric, results).by_unit)
    }


def _compare_group(
    group: ContrastGroup,
    differences: Mapping[Key, Mapping[int, float]],
    results: SeedResults,
    family: int,
    answer: AnswerPlan,
) -> dict[Key, PairedEstimate]:
    """Return tests of differences, without p-values if all seeds agree in an arm and in its reference."""
    steps = {metric: _pooled_resolution(group, metric, results) for _, metric in differences}
    estimates = compare(
        differences, family=family, level=answer.level, resolutions=steps, moderated=answer.moderated
    )
    unvaried_arms = {arm for arms in group.contexts for arm in arms if results.same_in_every_seed(arm)}
    without_chance = {
        contrast.arm
        for contrast in group.contrasts
        if any(unvaried_arms.issuperset(pair) for pair in contrast.pairs)
    }
    return {
        key: estimate.without_chance if key[0] in without_chance else estimate
        for key, estimate in estimates.items()
    }


def _pooled_resolution(group: ContrastGroup, metric: str, results: SeedResults) -> float:
    """Return the resolution of differences for `compare`.

    `compare` expects r / sqrt(6), the rounding of a difference. The rounding of the mean of k differences
    with resolutions r1 ... rk is sqrt((r1^2 + ... + rk^2) / 6) / k.
    """
    steps = [resolution(results.all_values(metric, arms)) for arms in group.contexts]
    return math.hypot(*steps) / len(steps)
