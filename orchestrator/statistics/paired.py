"""The one procedure behind every claim: paired t intervals, corrected by Bonferroni over the whole family.

The family is every arm in every primary outcome. With m members at level a, the interval of one is mean +-
t(1 - a / (2 m), n - 1) * spread / sqrt(n), and its p is m times that of the t test, at most 1. Both come
from the same three numbers, so p <= a exactly when the interval leaves out 0, and with probability 1 - a all
intervals of a family hold at once.

The spread is the sample standard deviation of the differences, but at least

- what rounding alone gives values that lie on a grid of step r: r / sqrt(12) each, r / sqrt(6) a difference.
  An accuracy on 50 examples that differs by 0.02 in every seed is no proof without error;
- half of the (lower) median spread of all arms in the same outcome. Seeds that fall into two tight groups are
  seldom all in one, but with three seeds and many arms one arm will be: without this bound 13% of studies
  without any effect report one (15 arms, 3 seeds), with it 0.2%.

Chosen by simulation: seeds drawn normal, binomial, bimodal, log-normal, t with 3 degrees of freedom and with
unequal variances, 3 to 16 seeds, 1 to 15 arms. Over 168 such settings of 2,000 studies each without any
effect the largest family-wise error is 0.065, what 2,000 studies of 0.05 give by chance; it is small where
spreads are raised (0.02 with 4 arms and 3 seeds) and for log-normal seeds (below 0.035). Of effects of 2
standard deviations in one of 4 arms it finds 0.16, 0.47, 0.72 with 4, 6, 8 seeds, sign flips with Holm's
correction 0, 0, 0.52. `python -m tests.orchestrator.statistics.studies` prints all of it; the slow tests
keep it.

Tried and left: Sidak's correction finds 0.01 more at most. The largest t of all arms finds 0.01 to 0.05
more, but needs the correlation that a shared baseline makes: taken for granted it errs where variances
differ, and found by rotating the seeds (exact for normal seeds, Langsrud 2005) it gives intervals that do
not hold at once where several arms differ. Pooling the spread over arms finds far more with three seeds and
errs where one arm varies more than the others. Nothing of all this withstands seeds that collapse now and
then where none of those run did: see `verdicts`.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from orchestrator.statistics.moderated import Prior, priors

LEVEL = 0.05
"""Family-wise error of all claims of a report, unless a spec says otherwise."""
MEDIAN_SHARE = 0.5
"""A spread is at least this share of the median spread in the same outcome."""
ROUNDING = 1e-12
"""What rounding of floats leaves of 0, relative to the numbers that were taken from each other."""
_NOISE = 1e-9
"""Differences of values, relative to the larger of them, that are rounding of floats."""

Key = tuple[str, str]
"""An arm and a primary outcome."""


@dataclass(frozen=True, slots=True)
class Paired:
    """What the differences of one arm in one outcome say."""

    by_seed: Mapping[int, float]
    """Differences, arm minus reference, one a seed, or one a repeat where searches are repeated."""
    family: int
    """Comparisons the claims hold for together."""
    level: float
    """Their family-wise error."""
    mean: float
    spread: float | None
    """Standard deviation that the interval is made of; None below two seeds and where all values are
    alike."""
    low: float | None
    high: float | None
    """Ends of the interval; None without a spread."""
    p: float | None
    """Two-sided, corrected for the family; None without a spread. At most `level` exactly when the interval
    leaves out 0."""
    raised: bool = False
    """Whether the spread is larger than that of these differences, by one of the two bounds."""
    spread_least: float = 0.0
    """The bound."""
    missing: int = 0
    """Units without a value, whatever value of which interval, p and verdict hold for; see
    `statistics.missing`."""
    prior: Prior | None = None
    """What the spread was averaged with; None where it is that of these differences alone."""

    @property
    def n(self) -> int:
        """Number of independent observations."""
        return len(self.by_seed)

    @property
    def without_chance(self) -> "Paired":
        """The same difference where it is known that the seeds say nothing of chance."""
        return replace(self, spread=None, low=None, high=None, p=None, raised=False)

    @property
    def shown(self) -> bool:
        """Whether the interval leaves out 0, that is `p` is at most `level`."""
        return self.p is not None and self.p <= self.level


def by_unit(by_seed: Mapping[int, float], units: Mapping[int, int]) -> dict[int, float]:
    """Return the mean of each independent observation of which every seed has a value.

    Args:
        by_seed: Value by seed.
        units: By seed the observation that it belongs to: itself, or the repeat of the search.
    """
    seeds: dict[int, list[int]] = {}
    for seed, unit in units.items():
        seeds.setdefault(unit, []).append(seed)
    return {
        unit: math.fsum(by_seed[seed] for seed in own) / len(own)
        for unit, own in seeds.items()
        if all(seed in by_seed for seed in own)
    }


def compare(
    differences: Mapping[Key, Mapping[int, float]],
    *,
    family: int,
    level: float = LEVEL,
    resolutions: Mapping[str, float] | None = None,
    moderated: bool = False,
) -> dict[Key, Paired]:
    """Estimate, interval and p for the differences of all arms in all primary outcomes.

    `differences`: by arm and outcome, seed to arm minus reference; arms without any are left out. `family`
    is how many comparisons were planned: what has failed or stopped early still counts. `resolutions`: by
    outcome the least step between two values, from `resolution`. `moderated`: whether the variances of an
    outcome are averaged with their prior, see `statistics.moderated`. Raises ValueError for a family that is
    smaller than what is given, or a level that is no probability.
    """
    given = {key: dict(sorted(values.items())) for key, values in differences.items() if values}
    if family < len(given):
        raise ValueError(f"a family must hold all comparisons, got {family=} for {len(given)}")
    if not 0 < level < 1:
        raise ValueError(f"a level must be between 0 and 1, got {level=}")
    spreads = {key: deviation(list(values.values())) for key, values in given.items() if len(values) > 1}
    prior = _priors(given, spreads) if moderated else {}
    found = {}
    for key, values in given.items():
        alike = [spread for (_, outcome), spread in spreads.items() if outcome == key[1]]
        step = (resolutions or {}).get(key[1], 0.0)
        least = least_spread(alike, step)
        spread, own = spreads.get(key), prior.get(key)
        found[key] = _paired(values, spread, least, family=family, level=level, prior=own)
    return found


def _priors(differences: Mapping[Key, Mapping[int, float]], spreads: Mapping[Key, float]) -> dict[Key, Prior]:
    """Return the priors of all outcomes."""
    found: dict[Key, Prior] = {}
    for outcome in dict.fromkeys(key[1] for key in differences):
        own = {arm: values for (arm, name), values in differences.items() if name == outcome}
        known = {arm: spread for (arm, name), spread in spreads.items() if name == outcome}
        found |= {(arm, outcome): each for arm, each in priors(own, known).items()}
    return found


def least_spread(spreads: Iterable[float], step: float) -> float:
    """What no spread in an outcome may fall below, given those of all arms and the step between values."""
    known = list(spreads)
    median = statistics.median_low(known) if known else 0.0
    return max(step / math.sqrt(6), MEDIAN_SHARE * median)


def _paired(
    by_seed: Mapping[int, float],
    spread: float | None,
    least: float,
    *,
    family: int,
    level: float,
    prior: Prior | None,
) -> Paired:
    mean = math.fsum(by_seed.values()) / len(by_seed)
    more = prior.freedom if prior is not None else 0.0
    if prior is not None and spread is not None:
        spread = prior.moderate(spread, len(by_seed) - 1)
    used = None if spread is None else max(spread, least)
    if not used:
        return Paired(by_seed, family, level, mean, None, None, None, None)
    n = len(by_seed)
    error = used / math.sqrt(n)
    half = critical(n, family, level, more) * error
    p = min(1.0, family * _p_alone(mean / error, n - 1 + more))
    # Where both round differently the interval decides: no reader may find them at odds.
    p = min(p, level) if abs(mean) > half else max(p, math.nextafter(level, 1))
    raised = spread is not None and used > spread
    ends = mean - half, mean + half
    return Paired(by_seed, family, level, mean, used, *ends, p, raised, least, prior=prior)


def minus(value: float, other: float) -> float:
    """`value` less `other`, in whatever unit; 0 where rounding of floats alone tells them apart."""
    return 0.0 if same((value, other)) else value - other


def same(values: Collection[float]) -> bool:
    """Whether rounding of floats alone tells these values apart. Raises ValueError for none."""
    return max(values) - min(values) <= ROUNDING * max(map(abs, values))


def critical(n: int, family: int, level: float = LEVEL, more: float = 0.0) -> float:
    """How many standard errors an interval of `n` seeds reaches to each side.

    `more`: degrees of freedom beyond those of the seeds, from a prior.
    """
    from scipy import special  # of which `stats.t` is made; it loads in a fraction of the time

    return float(-special.stdtrit(n - 1 + more, level / (2 * family)))


def _p_alone(t: float, freedom: float) -> float:
    from scipy import special

    return float(2 * special.stdtr(freedom, -abs(t)))


def p_without(found: Paired, seed: int) -> float | None:
    """Two-sided p of this comparison alone, uncorrected, without one seed; None where fewer than 2 are
    left."""
    rest = [value for each, value in found.by_seed.items() if each != seed]
    if len(rest) < 2 or found.spread is None:
        return None
    freedom, spread = len(rest) - 1, deviation(rest)
    more = found.prior.freedom if found.prior is not None else 0.0
    if found.prior is not None:
        spread = found.prior.moderate(spread, freedom)
    used = max(spread, found.spread_least)
    if not used:
        return 0.0 if any(rest) else 1.0
    return _p_alone(math.fsum(rest) / len(rest) / (used / math.sqrt(len(rest))), freedom + more)


def deviation(values: list[float]) -> float:
    """Sample standard deviation of at least two values; 0 where they differ by rounding of floats alone."""
    mean = math.fsum(values) / len(values)
    found = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return found if found > _NOISE * max(map(abs, values)) else 0.0


def resolution(values: Iterable[float]) -> float:
    """The least step between two different values of an outcome, over all arms and seeds; 0 if all are alike.

    Of shares of N examples it is a multiple of 1 / N, of anything continuous it is next to nothing. What is
    rounding is judged by the two values alone: where one arm exploded, its values say nothing of the others'.
    """
    steps = (
        (after - before, max(abs(before), abs(after))) for before, after in pairwise(sorted(set(values)))
    )
    return min((step for step, size in steps if step > _NOISE * size), default=0.0)
