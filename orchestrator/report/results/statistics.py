"""Compute means, differences, intervals and the exact test; claims come from `orchestrator.statistics`."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.statistics.paired import PairedEstimate, are_equal, subtract

INTERVAL_LEVEL = 0.95
MAX_EXACT_PAIRS = 14
NUM_SAMPLED_FLIPS = 20_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its two-sided t interval.

    The ends are None below two values and if all values are equal, because such values contain no information
    on chance.
    """

    n: int
    mean: float
    low: float | None
    high: float | None


def estimate(
    values: Sequence[float], level: float = INTERVAL_LEVEL, span: tuple[float, float] = (-math.inf, math.inf)
) -> Estimate:
    """Return the mean of `values` and its Student t interval at `level`.

    The interval is cut off at `span`, the range of possible values of the quantity. Raises ValueError if
    there are no values.
    """
    if not values:
        raise ValueError(f"an estimate needs at least one value, got {values=}")
    from scipy import special  # `stats`, which is based on it, takes several times as long to import

    n, mean = len(values), math.fsum(values) / len(values)
    if n < 2 or are_equal(values):
        return Estimate(n, mean, None, None)
    spread = math.sqrt(_variance(values))
    half_interval = float(-special.stdtrit(n - 1, (1 - level) / 2)) * spread / math.sqrt(n)
    return clip_interval(Estimate(n, mean, mean - half_interval, mean + half_interval), span)


def paired_estimate(paired: PairedEstimate, span: tuple[float, float]) -> Estimate:
    """Return an estimate with the interval of the family, cut off at `span`, the range of differences."""
    return clip_interval(Estimate(paired.n, paired.mean, paired.low, paired.high), span)


def clip_interval(estimate: Estimate, span: tuple[float, float]) -> Estimate:
    """Return the estimate with its interval cut off at `span`."""
    if estimate.low is None or estimate.high is None:
        return estimate
    low, high = max(estimate.low, span[0]), min(estimate.high, span[1])
    return replace(estimate, low=min(low, estimate.mean), high=max(high, estimate.mean))


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the two-sided p of the paired sign-flip test of mean 0.

    The test is exact up to 14 pairs, else it uses 20,000 seeded flips. The smallest possible value with n
    pairs is 2 / 2^n.
    """
    import numpy as np
    from scipy import stats

    if len(differences) < 2 or not any(differences):
        return 1.0
    is_exact = len(differences) <= MAX_EXACT_PAIRS
    test_result = stats.permutation_test(
        (np.asarray(differences, dtype=float),),
        lambda sample, axis: np.mean(sample, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf if is_exact else NUM_SAMPLED_FLIPS,
        rng=np.random.default_rng(0),
    )
    return float(test_result.pvalue)


def rate_interval(count: int, total: int, level: float = INTERVAL_LEVEL) -> tuple[float, float]:
    """Return the two-sided interval of a rate by Clopper and Pearson (1934)."""
    from scipy import special

    tail = (1 - level) / 2
    low = float(special.betaincinv(count, total - count + 1, tail)) if count else 0.0
    high = float(special.betaincinv(count + 1, total - count, 1 - tail)) if count < total else 1.0
    return low, high


@dataclass(frozen=True, slots=True)
class WinShare:
    """The share of paired seeds, or repeats, in which an arm is better than its reference.

    It estimates the probability that an arm is better, like the probability of improvement of Agarwal et al.
    (2021) for unpaired runs. It is uncorrected, and no verdict rests on it.
    """

    wins: int
    ties: int
    n: int
    share: float
    """Wins and half of the ties, divided by `n`."""
    low: float | None
    """Lower end of the 95% interval of Clopper and Pearson, if every tie were a loss.

    None if the mean difference has no interval.
    """
    high: float | None
    """The upper end if every tie were a win. With ties the interval covers more often than it states."""
    better: Literal["max", "min"] | None
    """Which values are good; None if undeclared, and a win is then a higher value."""


def win_share(
    differences: Collection[float], better: Literal["max", "min"] | None, *, has_interval: bool
) -> WinShare:
    """Return the share of paired differences, arm minus reference, in which the arm is better.

    Args:
        differences: One for each seed or repeat, at least one.
        better: Which values of the outcome are good.
        has_interval: Whether the mean difference has an interval.
    """
    sign = -1 if better == "min" else 1
    n, wins = len(differences), sum(sign * difference > 0 for difference in differences)
    ties = sum(difference == 0 for difference in differences)
    low = rate_interval(wins, n)[0] if has_interval else None
    high = rate_interval(wins + ties, n)[1] if has_interval else None
    return WinShare(wins, ties, n, (wins + ties / 2) / n, low, high, better)


def paired_win_share(paired: PairedEstimate, better: Literal["max", "min"] | None) -> WinShare:
    """Return the share of seeds in which the arm wins; `better` states which values are good."""
    return win_share(paired.differences.values(), better, has_interval=paired.low is not None)


def welch_difference(
    first: Sequence[float], second: Sequence[float], level: float = INTERVAL_LEVEL
) -> tuple[float, float | None, float | None]:
    """Return the mean of `second` minus the mean of `first`, with its two-sided interval at `level`.

    The samples are independent and their variances may differ (Welch 1947); degrees of freedom by Welch and
    Satterthwaite. The ends are None if a sample has fewer than two values, or if neither varies. Raises
    ValueError for an empty sample.
    """
    if not first or not second:
        raise ValueError(f"both samples must have values, got {len(first)} and {len(second)}")
    mean = subtract(math.fsum(second) / len(second), math.fsum(first) / len(first))
    if min(len(first), len(second)) < 2 or (are_equal(first) and are_equal(second)):
        return mean, None, None
    parts = [_variance(values) / len(values) for values in (first, second)]
    error = math.fsum(parts)
    from scipy import special

    sizes = (len(first), len(second))
    freedom = error**2 / math.fsum(part**2 / (n - 1) for part, n in zip(parts, sizes, strict=True))
    half = float(special.stdtrit(freedom, (1 + level) / 2)) * math.sqrt(error)
    return mean, mean - half, mean + half


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
