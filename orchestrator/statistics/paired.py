"""Paired t intervals and p-values, corrected by Bonferroni over the family of comparisons.

The family is every arm in every primary outcome. With m members at level a, the interval of one member is
mean +- t(1 - a / (2 m), n - 1) * spread / sqrt(n), and its p is m times the p of the t test, at most 1. Both
use the same three numbers, so p <= a exactly when the interval excludes 0. With probability 1 - a all
intervals of a family hold simultaneously.

The spread is the sample standard deviation of the differences, but at least

- the standard deviation from rounding of values on a grid of step r: r / sqrt(12) per value, r / sqrt(6) per
  difference. An accuracy on 50 examples that differs by 0.02 in every seed is not evidence without error;
- half of the (lower) median spread of all arms in the same outcome. If seeds fall into two tight groups, all
  seeds of one arm are rarely in the same group. With three seeds and many arms this happens to some arm:
  without the bound 13% of studies without any effect report one (15 arms, 3 seeds), with the bound 0.2%.

The procedure was chosen by simulation: seeds from normal, binomial, bimodal and log-normal distributions, t
with 3 degrees of freedom and unequal variances; 3 to 16 seeds, 1 to 15 arms. Over 168 such settings of 2,000
studies each without any effect the largest family-wise error is 0.065, which 2,000 studies at 0.05 reach by
chance. The error is small where spreads are raised (0.02 with 4 arms and 3 seeds) and for log-normal seeds
(below 0.035). Of effects of 2 standard deviations in one of 4 arms, the procedure detects 0.16, 0.47, 0.72
with 4, 6, 8 seeds; sign flips with Holm's correction detect 0, 0, 0.52. `python -m
tests.orchestrator.statistics.studies` prints all numbers, and the slow tests check them.

Rejected alternatives:

- Sidak's correction detects at most 0.01 more.
- The largest t of all arms detects 0.01 to 0.05 more, but needs the correlation from the shared baseline. An
  assumed correlation gives errors if variances differ. A correlation estimated by rotating the seeds (exact
  for normal seeds, Langsrud 2005) gives intervals that do not hold simultaneously if several arms differ.
- Pooling the spread over arms detects far more with three seeds, and gives errors if one arm varies more than
  the others.

None of these methods is robust to seeds that collapse occasionally if no collapsed seed was observed: see
`verdicts`.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from orchestrator.statistics.moderated import Prior, estimate_priors

LEVEL = 0.05
"""Default family-wise error of all claims of a report."""
MIN_MEDIAN_SHARE = 0.5
"""Minimum spread as a share of the median spread in the same outcome."""
ZERO_TOLERANCE = 1e-12
"""Tolerance for a difference that should be 0, relative to the subtracted numbers."""
_ROUNDING_SHARE = 1e-9
"""Differences of values up to this share of the larger one count as rounding errors."""

Key = tuple[str, str]
"""An arm and a primary outcome."""


@dataclass(frozen=True, slots=True)
class PairedEstimate:
    """Estimate, interval and p-value for the differences of one arm in one outcome."""

    differences: Mapping[int, float]
    """Differences, arm minus reference: one per seed, or one per repeat if searches are repeated."""
    family_size: int
    """Number of comparisons for which the claims hold simultaneously."""
    level: float
    """Family-wise error of the claims."""
    mean: float
    spread: float | None
    """Standard deviation for the interval; None with fewer than two seeds or if all values are equal."""
    low: float | None
    high: float | None
    """Upper end of the interval; like the lower end `low`, None without a spread."""
    p: float | None
    """Two-sided p, corrected for the family; None without a spread. At most `level` exactly when the interval
    excludes 0."""
    is_spread_bounded: bool = False
    """Whether one of the two lower bounds replaced the spread of these differences."""
    min_spread: float = 0.0
    """Lower bound of the spread."""
    num_missing: int = 0
    """Number of units without a value; interval, p and verdict hold for all their values, see
    `statistics.missing`."""
    prior: Prior | None = None
    """Prior with which the spread was averaged; None if the spread uses these differences alone."""

    @property
    def n(self) -> int:
        """Number of independent observations."""
        return len(self.differences)

    @property
    def drop_interval(self) -> "PairedEstimate":
        """Return the difference without spread, interval and p, for seeds that show no random variation."""
        return replace(self, spread=None, low=None, high=None, p=None, is_spread_bounded=False)

    @property
    def excludes_zero(self) -> bool:
        """Return whether the interval excludes 0, that is, whether `p` is at most `level`."""
        return self.p is not None and self.p <= self.level


def by_unit(by_seed: Mapping[int, float], units: Mapping[int, int]) -> dict[int, float]:
    """Return the mean of each independent observation for which every seed has a value.

    Args:
        by_seed: Value by seed.
        units: Independent observation by seed: the seed itself, or the repeat of the search.
    """
    seeds: dict[int, list[int]] = {}
    for seed, unit in units.items():
        seeds.setdefault(unit, []).append(seed)
    return {
        unit: math.fsum(by_seed[seed] for seed in unit_seeds) / len(unit_seeds)
        for unit, unit_seeds in seeds.items()
        if all(seed in by_seed for seed in unit_seeds)
    }


def estimate_differences(
    differences: Mapping[Key, Mapping[int, float]],
    *,
    family: int,
    level: float = LEVEL,
    resolutions: Mapping[str, float] | None = None,
    moderated: bool = False,
) -> dict[Key, PairedEstimate]:
    """Return estimate, interval and p for the differences of all arms in all primary outcomes.

    Args:
        differences: By arm and outcome, the difference arm minus reference by seed. Empty ones are left out.
        family: Number of planned comparisons, including those that failed or stopped early.
        level: Family-wise error.
        resolutions: By outcome, the least step between two values, from `resolution`.
        moderated: Whether to average the variances of an outcome with their prior, see
            `statistics.moderated`.

    Raises:
        ValueError: The family is smaller than the number of comparisons, or the level is not in (0, 1).
    """
    sorted_differences = {key: dict(sorted(values.items())) for key, values in differences.items() if values}
    if family < len(sorted_differences):
        raise ValueError(f"a family must hold all comparisons, got {family=} for {len(sorted_differences)}")
    if not 0 < level < 1:
        raise ValueError(f"a level must be between 0 and 1, got {level=}")
    spreads = {
        key: deviation(list(values.values())) for key, values in sorted_differences.items() if len(values) > 1
    }
    prior = _priors(sorted_differences, spreads) if moderated else {}
    estimates = {}
    for key, values in sorted_differences.items():
        outcome_spreads = [spread for (_, outcome), spread in spreads.items() if outcome == key[1]]
        step = (resolutions or {}).get(key[1], 0.0)
        least = least_spread(outcome_spreads, step)
        spread, own_prior = spreads.get(key), prior.get(key)
        estimates[key] = _make_estimate(values, spread, least, family=family, level=level, prior=own_prior)
    return estimates


def _priors(differences: Mapping[Key, Mapping[int, float]], spreads: Mapping[Key, float]) -> dict[Key, Prior]:
    """Return the priors of all outcomes."""
    priors_by_key: dict[Key, Prior] = {}
    for outcome in dict.fromkeys(key[1] for key in differences):
        differences_of_outcome = {
            arm: values for (arm, name), values in differences.items() if name == outcome
        }
        spread_by_arm = {arm: spread for (arm, name), spread in spreads.items() if name == outcome}
        priors_by_key |= {
            (arm, outcome): prior
            for arm, prior in estimate_priors(differences_of_outcome, spread_by_arm).items()
        }
    return priors_by_key


def least_spread(spreads: Iterable[float], step: float) -> float:
    """Return the lower bound of the spreads in an outcome.

    Args:
        spreads: Spreads of all arms in the outcome.
        step: Least step between two values of the outcome.
    """
    known_spreads = list(spreads)
    median = statistics.median_low(known_spreads) if known_spreads else 0.0
    return max(step / math.sqrt(6), MIN_MEDIAN_SHARE * median)


def _make_estimate(
    by_seed: Mapping[int, float],
    spread: float | None,
    least: float,
    *,
    family: int,
    level: float,
    prior: Prior | None,
) -> PairedEstimate:
    mean = math.fsum(by_seed.values()) / len(by_seed)
    extra_freedom = prior.freedom if prior is not None else 0.0
    if prior is not None and spread is not None:
        spread = prior.moderate(spread, len(by_seed) - 1)
    used_spread = None if spread is None else max(spread, least)
    if not used_spread:
        return PairedEstimate(by_seed, family, level, mean, None, None, None, None)
    n = len(by_seed)
    error = used_spread / math.sqrt(n)
    half = half_width(n, family, level, extra_freedom) * error
    p = min(1.0, family * _two_sided_p(mean / error, n - 1 + extra_freedom))
    # If interval and p round differently, the interval decides, so that a report is consistent.
    p = min(p, level) if abs(mean) > half else max(p, math.nextafter(level, 1))
    is_raised = spread is not None and used_spread > spread
    ends = mean - half, mean + half
    return PairedEstimate(by_seed, family, level, mean, used_spread, *ends, p, is_raised, least, prior=prior)


def subtract(value: float, subtrahend: float) -> float:
    """Return `value - subtrahend`; 0 if they differ only by rounding."""
    return 0.0 if are_equal((value, subtrahend)) else value - subtrahend


def are_equal(values: Collection[float]) -> bool:
    """Return whether the values differ only by rounding; raise ValueError if there are none."""
    return max(values) - min(values) <= ZERO_TOLERANCE * max(map(abs, values))


def half_width(n: int, family: int, level: float = LEVEL, extra_freedom: float = 0.0) -> float:
    """Return the half-width of an interval of `n` seeds in standard errors.

    Args:
        n: Number of seeds.
        family: Number of comparisons.
        level: Family-wise error.
        extra_freedom: Additional degrees of freedom from a prior.
    """
    from scipy import special  # `stats.t` uses it; importing it alone is much faster

    return float(-special.stdtrit(n - 1 + extra_freedom, level / (2 * family)))


def _two_sided_p(t: float, freedom: float) -> float:
    from scipy import special

    return float(2 * special.stdtr(freedom, -abs(t)))


def p_without_seed(paired: PairedEstimate, seed: int) -> float | None:
    """Return the two-sided p of this comparison after removal of one seed, not corrected for the family.

    Returns:
        None if fewer than 2 seeds remain, or without a spread.
    """
    remaining_values = [value for other_seed, value in paired.differences.items() if other_seed != seed]
    if len(remaining_values) < 2 or paired.spread is None:
        return None
    freedom, spread = len(remaining_values) - 1, deviation(remaining_values)
    extra_freedom = paired.prior.freedom if paired.prior is not None else 0.0
    if paired.prior is not None:
        spread = paired.prior.moderate(spread, freedom)
    used_spread = max(spread, paired.min_spread)
    if not used_spread:
        return 0.0 if any(remaining_values) else 1.0
    return _two_sided_p(
        math.fsum(remaining_values)
        / len(remaining_values)
        / (used_spread / math.sqrt(len(remaining_values))),
        freedom + extra_freedom,
    )


def deviation(values: list[float]) -> float:
    """Return the sample standard deviation of at least two values; 0 if they differ only by rounding."""
    mean = math.fsum(values) / len(values)
    standard_deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return standard_deviation if standard_deviation > _ROUNDING_SHARE * max(map(abs, values)) else 0.0


def resolution(values: Iterable[float]) -> float:
    """Return the least step between two different values of an outcome; 0 if all values are equal.

    For shares of N examples the step is a multiple of 1 / N; for continuous values it is nearly 0. Each pair
    of values determines its own rounding tolerance, so an arm with huge values does not affect the other
    arms.
    """
    steps = ((high - low, max(abs(low), abs(high))) for low, high in pairwise(sorted(set(values))))
    return min((step for step, size in steps if step > _ROUNDING_SHARE * size), default=0.0)
