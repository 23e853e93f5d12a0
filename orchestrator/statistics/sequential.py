"""Interim looks at a sweep: arms with a certain verdict need no more seeds.

There is a look at every undecided arm after 3, 4, ... seeds. An arm is decided if all of its primary outcomes
are decided. An outcome is decided if its interval at the level of looks (a twentieth of the sweep's level)

- excludes 0, and the verdict at the sweep's level does not depend on a single seed; or
- is within the margin on both sides, so that a larger difference is excluded.

An arm is stopped as undecided if all seeds would leave it undecided in more than 9 of 10 cases. The other
arms are judged with all seeds at the sweep's level, as without looks (Haybittle 1971, Peto et al. 1976). An
arm that is the reference of others runs all seeds.

With k looks the family-wise error is at most 1 + k / 20 times the level, by Bonferroni over the looks. The
error is smaller because looks share most seeds, and because some arms are stopped as undecided. In 2,000
simulated studies each of 8 seeds and 1, 4 and 15 arms (normal, binomial, bimodal, log-normal, t with 3
degrees of freedom, unequal variances; `tests/orchestrator/statistics/looks.py` prints the table) it is at
most 0.054.

Rejected alternatives:

- looks at a tenth of the level (error 0.061);
- a final level lowered by the error of the looks (0.66 instead of 0.72 of effects of 2 standard deviations
  detected with 4 arms);
- stopping below a chance of 0.2 (0.70 instead of 0.74 detected);
- stopping by a spread shared among the arms (0.96 of verdicts on published effects are preserved, and 0.997
  with each arm's own spread).

Looks increase the error of any test of means if training collapses occasionally: if one seed in five
collapses, 0.32 of 1-arm studies without effect report one, and 0.17 without looks. Do not use looks for such
training.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from orchestrator.statistics.paired import (
    Key,
    PairedEstimate,
    estimate_differences,
    half_width,
    resolution,
    subtract,
)
from orchestrator.statistics.power import chance
from orchestrator.statistics.verdicts import MIN_VERDICT_SEEDS, Verdict, verdict
from search_spaces.wording import amount

LOOK_LEVEL_SHARE = 0.05
"""Level of a look, as a share of the sweep's level."""
MIN_CHANCE = 0.1
"""An arm is stopped if the probability of a verdict with all seeds is below this."""
FIRST_LOOK = MIN_VERDICT_SEEDS
"""Number of seeds before the first look."""

ValuesByArmAndOutcome = Mapping[Key, Mapping[int, float]]
"""Measured values by seed, by arm and outcome."""


@dataclass(frozen=True, slots=True)
class LookSetup:
    """Comparisons, outcomes and error level of a sweep."""

    references: Mapping[str, str]
    """Reference by arm."""
    outcomes: tuple[str, ...]
    """Primary outcomes."""
    better: Mapping[str, Literal["max", "min"] | None]
    """Whether large or small values are good, by outcome; None if unknown."""
    margin: float | None
    """Least difference in the first outcome that matters."""
    level: float
    """Family-wise error."""
    family_size: int
    """Number of comparisons: arms times outcomes."""
    num_seeds: int
    """Number of independent observations in the complete sweep: seeds, or repeats of the search."""
    unit: Literal["seed", "repeat"] = "seed"
    """Word for an observation."""


@dataclass(frozen=True, slots=True)
class EarlyVerdict:
    """Verdicts of an arm that needs no more seeds."""

    arm: str
    num_seeds: int
    """Number of seeds that had run."""
    level: float
    """Level of the look, to which its intervals and p-values refer."""
    comparisons: Mapping[str, PairedEstimate]
    """Comparisons by outcome."""
    verdicts: Mapping[str, Verdict]


def look_sizes(seeds: int) -> range:
    """Return the numbers of seeds after which there is a look, excluding the last one."""
    return range(FIRST_LOOK, seeds)


def expected_seeds(effect: float, seeds: int, family: int, level: float) -> float:
    """Return the expected number of seeds of an arm with looks.

    The non-central t distribution gives the probability of a decision at each look. The true number is
    slightly larger, since a verdict must not depend on a single seed and spreads have a lower bound.

    Args:
        effect: Difference from the reference, in standard deviations of one run over seeds.
        seeds: Number of seeds without looks.
        family: Number of comparisons.
        level: Family-wise error of the sweep.
    """
    decision_chances = [
        chance(effect, number, family, level * LOOK_LEVEL_SHARE) for number in look_sizes(seeds)
    ]
    return seeds - sum(accumulate(decision_chances, max))


def decide_arms(
    question: LookSetup,
    values: ValuesByArmAndOutcome,
    look_seeds: Sequence[int],
    undecided_arms: Collection[str],
    failed_seeds: Mapping[str, Collection[int]],
) -> dict[str, EarlyVerdict]:
    """Return the arms that are decided once the seeds `look_seeds` have run, with their verdicts.

    Args:
        question: Comparisons and error level of the sweep.
        values: Values of all arms that have run, including arms that were decided before. Only the seeds
            `look_seeds` are used.
        look_seeds: Seeds of this look.
        undecided_arms: Arms to decide.
        failed_seeds: Failed seeds by arm. An arm remains undecided if a seed of `look_seeds` failed for the
            arm or its reference.
    """
    values_at_look = {
        key: {seed: values_by_seed[seed] for seed in look_seeds if seed in values_by_seed}
        for key, values_by_seed in values.items()
    }
    at_look, at_end = (
        _compare_values(question, values_at_look, question.level * share) for share in (LOOK_LEVEL_SHARE, 1.0)
    )
    early_verdicts = {}
    for arm in undecided_arms:
        reference = question.references[arm]
        if any(
            seed in failed_seeds.get(arm_name, ()) for arm_name in (arm, reference) for seed in look_seeds
        ):
            continue
        if any(
            len(at_look[arm, name].differences) < len(look_seeds)
            for name in question.outcomes
            if (arm, name) in at_look
        ):
            continue
        estimates = {name: at_look[arm, name] for name in question.outcomes if (arm, name) in at_look}
        verdict_by_outcome = {
            name: _certain_verdict(question, name, estimates[name], at_end[arm, name]) for name in estimates
        }
        if len(verdict_by_outcome) < len(question.outcomes) or not all(verdict_by_outcome.values()):
            continue
        verdicts = {name: verdict for name, verdict in verdict_by_outcome.items() if verdict is not None}
        early_verdicts[arm] = EarlyVerdict(
            arm, len(look_seeds), question.level * LOOK_LEVEL_SHARE, estimates, verdicts
        )
    return early_verdicts


def _certain_verdict(
    question: LookSetup, outcome: str, at_look: PairedEstimate, at_end: PairedEstimate
) -> Verdict | None:
    """Return the verdict of a look; None if it is not certain."""
    margin = question.margin if outcome == question.outcomes[0] else None
    if at_look.excludes_zero:
        # Test for a decisive seed at the sweep's level: at the level of looks few verdicts would pass.
        statement = verdict(at_end, margin=margin, better=question.better.get(outcome), unit=question.unit)
        return None if statement.withheld else statement
    statement = verdict(at_look, margin=margin, better=question.better.get(outcome), unit=question.unit)
    if statement.kind == "no difference":
        return statement
    if at_end.excludes_zero or decision_probability(at_end, question.num_seeds, margin) >= MIN_CHANCE:
        return None
    all_units = amount(question.num_seeds, question.unit)
    return Verdict("undecided", f"undecided: all {all_units} would probably not decide it")


def decision_probability(paired: PairedEstimate, seeds: int, margin: float | None) -> float:
    """Return the probability that the interval after all `seeds` seeds excludes 0 or is within the margin.

    The mean of future seeds follows its posterior predictive distribution (Student's t, uniform prior of the
    true mean), and the spread stays constant. Returns 1 without a spread or with fewer than 3 seeds.
    """
    from scipy import stats

    if paired.spread is None or paired.n < MIN_VERDICT_SEEDS:
        return 1.0
    half_interval = half_width(seeds, paired.family_size, paired.level) * paired.spread / math.sqrt(seeds)
    mean_deviation = paired.spread * math.sqrt((seeds - paired.n) / (seeds * paired.n))
    mean, distribution = abs(paired.mean), stats.t(paired.n - 1)
    chance = float(
        distribution.sf((half_interval - mean) / mean_deviation)
        + distribution.cdf((-half_interval - mean) / mean_deviation)
    )
    if margin is not None and margin > half_interval:
        slack = margin - half_interval
        chance += float(
            distribution.cdf((slack - mean) / mean_deviation)
            - distribution.cdf((-slack - mean) / mean_deviation)
        )
    return min(1.0, chance)


def _compare_values(
    question: LookSetup, values: ValuesByArmAndOutcome, level: float
) -> dict[Key, PairedEstimate]:
    differences = {
        (arm, name): {
            seed: subtract(value, values[reference, name][seed])
            for seed, value in values[arm, name].items()
            if seed in values[reference, name]
        }
        for arm, reference in question.references.items()
        for name in question.outcomes
        if (arm, name) in values and (reference, name) in values
    }
    steps = {
        name: resolution(
            value
            for key, values_by_seed in values.items()
            if key[1] == name
            for value in values_by_seed.values()
        )
        for name in question.outcomes
    }
    return estimate_differences(differences, family=question.family_size, level=level, resolutions=steps)
