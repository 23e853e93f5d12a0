"""Power before any seed has run: the smallest effect that the planned seeds detect 8 times in 10.

It is the power of the t test in `paired` (n - 1 degrees of freedom, corrected for the family), computed from
the non-central t distribution. The additional rule of verdicts (no single seed may decide) costs less than a
point of power from 8 seeds on.
"""

import math
from bisect import bisect_left
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from orchestrator.statistics.paired import LEVEL, half_width

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

POWER = 0.8
"""Probability of detecting an effect."""
MIN_SEEDS, MAX_SEEDS = 3, 1000
NUM_SPREADS = 2000
"""Number of equally likely values by which `_spreads` represents the distribution of a sample spread."""
_PAIR_SPREAD = math.sqrt(2)
"""Standard deviation of a difference of two runs, in standard deviations of one run; seeds are
independent."""


@cache
def smallest_effect(seeds: int, family: int, level: float = LEVEL, power: float = POWER) -> float:
    """Return the smallest difference that `seeds` pairs detect with probability `power`.

    Returns:
        The difference in standard deviations of one run over seeds; infinite below 2 seeds.
    """
    if seeds < 2:
        return math.inf
    from scipy import optimize

    upper = 1.0
    while _power(upper, seeds, family, level) < power:
        upper *= 2
    root = optimize.brentq(lambda effect: _power(effect, seeds, family, level) - power, 0.0, upper, rtol=1e-6)
    return float(root)


def seeds_needed(effect: float, family: int, level: float = LEVEL, power: float = POWER) -> int | None:
    """Return the fewest seeds, at least 3, that detect an effect with probability `power`.

    Args:
        effect: Difference in standard deviations of one run over seeds.
        family: Number of comparisons.
        level: Family-wise error.
        power: Probability of detecting the effect.

    Returns:
        The number of seeds; None if 1,000 are too few.
    """
    # Power increases with the number of seeds, so bisection finds the fewest.
    numbers = range(MIN_SEEDS, MAX_SEEDS + 1)
    num_seeds = MIN_SEEDS + bisect_left(
        numbers, power, key=lambda seeds: chance(effect, seeds, family, level)
    )
    return num_seeds if num_seeds <= MAX_SEEDS else None


def chance(effect: float, seeds: int, family: int, level: float = LEVEL) -> float:
    """Return the probability that an interval of `seeds` pairs excludes 0, on either side.

    Args:
        effect: Difference in standard deviations of one run over seeds.
        seeds: Number of pairs.
        family: Number of comparisons.
        level: Family-wise error.
    """
    return 0.0 if seeds < 2 else _power(abs(effect), seeds, family, level)


def _power(effect: float, seeds: int, family: int, level: float) -> float:
    """Return the tail probability of the non-central t distribution, averaged over sample spreads.

    SciPy's function loses all digits far in the tail.
    """
    import numpy as np
    from scipy import special

    spreads = _spreads(seeds)
    half, shift = half_width(seeds, family, level) * spreads, effect / _PAIR_SPREAD * math.sqrt(seeds)
    return float(np.mean(special.ndtr(shift - half) + special.ndtr(-shift - half)))


@lru_cache(maxsize=64)
def _spreads(seeds: int) -> "NDArray[np.float64]":
    """Return equally likely values of the sample spread of `seeds` results, in units of the true spread."""
    import numpy as np
    from scipy import special

    shares = (np.arange(NUM_SPREADS) + 0.5) / NUM_SPREADS
    spreads: NDArray[np.float64] = np.sqrt(special.chdtri(seeds - 1, 1 - shares) / (seeds - 1))
    return spreads
