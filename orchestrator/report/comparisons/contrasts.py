"""Compute and test differences of arms to their references in primary outcomes, by context."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from statistics import fmean
from typing import Literal

from orchestrator.plan.answer import better_direction
from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.report.comparisons.failed_seeds import difference_bounds
from orchestrator.report.results.seed_results import Pairs, SeedResults, mean_by_seed
from orchestrator.spec.scalars import assignments
from orchestrator.statistics.missing import verdict_despite_missing
from orchestrator.statistics.paired import Key, PairedEstimate, estimate_differences, resolution, subtract


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


def paired_seeds(pairs: Pairs, metric: str, results: SeedResults) -> PairedSeeds:
    """Return differences by seed, averaged over `pairs` of arm and reference.

    Only seeds with values in all pairs are included.
    """
    record_ids: list[tuple[str, str]] = []
    differences_by_pair: list[Mapping[int, float]] = []
    for pair in pairs:
        arm_values, reference_values = (results.by_seed(arm, metric) for arm in pair)
        shared_keys = [key for key in arm_values if key in reference_values]
        differences = {
            key: (subtract(arm_values[key][0], reference_values[key][0]), "") for key in shared_keys
        }
        record_ids += [(arm_values[key][1], reference_values[key][1]) for key in shared_keys]
        differences_by_pair.append(mean_by_seed(differences))
    common_seeds = [
        seed for seed in differences_by_pair[0] if all(seed in values for values in differences_by_pair)
    ]
    by_seed = {seed: fmean(values[seed] for values in differences_by_pair) for seed in common_seeds}
    return PairedSeeds(tuple(record_ids), results.by_unit(by_seed))


Differences = Mapping[Key, Mapping[int, float]]
"""Differences by unit, for each arm and outcome."""


@dataclass(frozen=True)
class Comparisons:
    """Tests of all contrasts of a plan in its primary outcomes."""

    plan: Plan
    answer: AnswerPlan
    results: SeedResults
    """Results of the confirm trials."""
    unended_seeds: Mapping[str, set[int]]
    """Seeds by arm that have not ended."""

    def margin(self, metric: str) -> float | None:
        """Return the smallest relevant difference in an outcome; None if the spec has none."""
        return self.answer.margin if metric == self.answer.outcomes[0] else None

    def goal(self, metric: str) -> Literal["max", "min"] | None:
        """Return which values of an outcome are good."""
        return better_direction(self.results.declaration(metric), metric, self.plan.objectives, self.answer)

    @cached_property
    def primary(self) -> dict[Key, PairedEstimate]:
        """Return estimates and tests by arm and outcome, corrected for the full family.

        Variances and resolutions differ between contexts, so bounds come from the same context. If seeds
        failed, the result is one that holds for all values that they could have had, if such a result exists.
        """
        groups = [*contrast_groups(self.plan, self.answer)]
        outcomes = self.answer.outcomes
        by_group = [_differences_by_unit(group, outcomes, self.results) for group in groups]
        family = max(self.answer.family, sum(map(len, by_group)))
        estimates: dict[Key, PairedEstimate] = {}
        for group, differences in zip(groups, by_group, strict=True):
            estimates |= self._compare_group(group, differences, family)
        return estimates

    def test_single(self, contrast: Contrast, metric: str) -> PairedEstimate | None:
        """Return the uncorrected test of one contrast; None without a difference."""
        names = next(arms for arms in self.plan.contexts if contrast.arm in {arm.name for arm in arms})
        group = ContrastGroup((contrast,), (tuple(arm.name for arm in names),))
        differences = _differences_by_unit(group, (metric,), self.results)
        return self._compare_group(group, differences, 1).get((contrast.arm, metric))

    def _compare_group(
        self, group: ContrastGroup, differences: Differences, family: int
    ) -> dict[Key, PairedEstimate]:
        estimates = self._test_differences(group, differences, family, moderated=self.answer.moderated)
        contrasts = {contrast.arm: contrast for contrast in group.contrasts}
        for key in [*estimates]:
            contrast, metric = contrasts[key[0]], key[1]
            is_open = any(self.unended_seeds.get(arm) for arm in contrast.arms)
            if not is_open and (bounds := difference_bounds(contrast.pairs, metric, self.results)):

                def test_with_values(missing: Mapping[int, float], key: Key = key) -> PairedEstimate:
                    completed = {**differences, key: {**differences[key], **missing}}
                    return self._test_differences(group, completed, family)[key]

                estimates[key] = verdict_despite_missing(
                    estimates[key],
                    bounds,
                    test_with_values,
                    margin=self.margin(metric),
                    better=self.goal(metric),
                )
        return estimates

    def _test_differences(
        self, group: ContrastGroup, differences: Differences, family: int, *, moderated: bool = False
    ) -> dict[Key, PairedEstimate]:
        """Return tests of differences.

        There is no p-value if all seeds of an arm have one value, and all seeds of its reference too.
        """
        steps = {metric: _pooled_resolution(group, metric, self.results) for _, metric in differences}
        estimates = estimate_differences(
            differences, family=family, level=self.answer.level, resolutions=steps, moderated=moderated
        )
        unvaried_arms = set(filter(self.results.is_equal_in_all_seeds, chain.from_iterable(group.contexts)))
        for contrast in group.contrasts:
            if any(unvaried_arms.issuperset(pair) for pair in contrast.pairs):
                for key in [key for key in estimates if key[0] == contrast.arm]:
                    estimates[key] = estimates[key].drop_interval
        return estimates


def _differences_by_unit(group: ContrastGroup, outcomes: Sequence[str], results: SeedResults) -> Differences:
    return {
        (contrast.arm, metric): by_unit
        for metric, contrast in product(outcomes, group.contrasts)
        if (by_unit := paired_seeds(contrast.pairs, metric, results).by_unit)
    }


def _pooled_resolution(group: ContrastGroup, metric: str, results: SeedResults) -> float:
    """Return the resolution of differences for `estimate_differences`.

    `estimate_differences` expects r / sqrt(6), the rounding of a difference. The rounding of the mean of k
    differences with resolutions r1 ... rk is sqrt((r1^2 + ... + rk^2) / 6) / k.
    """
    steps = [resolution(results.all_values(metric, arms)) for arms in group.contexts]
    return math.hypot(*steps) / len(steps)
