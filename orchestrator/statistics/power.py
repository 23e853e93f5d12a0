"""What seeds can show before any of them has run: the smallest effect that is found 8 times in 10.

The arithmetic is that of `paired`: t with n - 1 degrees of freedom, corrected for the family, against the
non-central t distribution. What a verdict asks beyond that (no single seed may make it) costs less than a
point of power from 8 seeds on.
"""

import math
from bisect import bisect_left
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from orchestrator.statistics.paired import LEVEL, critical

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

POWER = 0.8
"""How often an effect is found."""
FEWEST, MOST_SEEDS = 3, 1000
SPREADS = 2000
"""Points of the distribution of a spread."""
_PAIR = math.sqrt(2)
"""Spread of a difference of two runs, in spreads of one run: seeds are taken to have nothing in common."""


@cache
def smallest_effect(seeds: int, family: int, level: float = LEVEL, power: float = POWER) -> float:
    """The difference, in standard deviations of one run's results over seeds, that `seeds` pairs find with
    probability `power`; infinite below 2 seeds."""
    if seeds < 2:
        return math.inf
    from scipy import optimize

    most = 1.0
    while _power(most, seeds, family, level) < power:
        most *= 2
    found = optimize.brentq(lambda effect: _power(effect, seeds, family, level) - power, 0.0, most, rtol=1e-6)
    return float(found)


def seeds_needed(effect: float, family: int, level: float = LEVEL, power: float = POWER) -> int | None:
    """Fewest seeds, at least 3, that find an `effect` in standard deviations of one run with probability
    `power`; None if 1,000 do not."""
    # More seeds always find more, so that a few numbers of them tell the fewest.
    numbers = range(FEWEST, MOST_SEEDS + 1)
    found = FEWEST + bisect_left(numbers, power, key=lambda seeds: chance(effect, seeds, family, level))
    return found if found <= MOST_SEEDS else None


def chance(effect: float, seeds: int, family: int, level: float = LEVEL) -> float:
    """How often an interval of `seeds` pairs leaves out 0, on either side, for an `effect` in standard
    deviations of one run."""
    return 0.0 if seeds < 2 else _power(abs(effect), seeds, family, level)


def _power(effect: float, seeds: int, family: int, level: float) -> float:
    """The tails of the non-central t distribution, averaged over what the spread may turn out to be: SciPy's
    own loses all digits far out."""
    import numpy as np
    from scipy import special

    spreads = _spreads(seeds)
    half, shift = critical(seeds, family, level) * spreads, effect / _PAIR * math.sqrt(seeds)
    return float(np.mean(special.ndtr(shift - half) + special.ndtr(-shift - half)))


@lru_cache(maxsize=64)
def _spreads(seeds: int) -> "NDArray[np.float64]":
    """What the spread of `seeds` results may turn out to be, in true spreads, all equally likely."""
    import numpy as np
    from scipy import special

    shares = (np.arange(SPREADS) + 0.5) / SPREADS
    spreads: NDArray[np.float64] = np.sqrt(special.chdtri(seeds - 1, 1 - shares) / (seeds - 1))
    return spreads
