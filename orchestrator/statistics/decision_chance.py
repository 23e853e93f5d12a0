"""Posterior predictive probability that more seeds or repeats decide an undecided verdict.

The prior: with probability p0 (`NO_EFFECT_PROBABILITY`) there is no effect. Otherwise the effect is normal
with mean 0, and its standard deviation is `EFFECT_SPREAD` standard deviations of one paired difference. The
logarithm of the standard deviation is uniform. The posterior has a closed form. For n differences with mean m
and sum of squared deviations S, and g the square of `EFFECT_SPREAD`,

- the odds of an effect are (1 - p0) / p0 / sqrt(1 + n g) * (R0 / R1)^(n / 2), where R0 = S + n
  m^2 and R1 = S + n m^2 / (1 + n g);
- the variance is R0 / chi^2(n) without an effect and R1 / chi^2(n) with one;
- given the variance v, an effect is normal with mean m n g / (1 + n g) and variance v g / (1 + n g).

Future differences are simulated from this posterior. The verdict is computed from all differences as in a
report, including the rule that a verdict must not depend on a single seed.

Probabilities are calibrated on average over the prior. In 1,500 undecided experiments each with 4, 5 and 8
seeds and 1 and 4 arms, twice the seeds decide 0.126 to 0.177. The prediction is 0.128 to 0.188. In bins of
predicted probabilities the agreement is similar. Without any effect 0.01 to 0.04 decide and 0.07 to 0.12 is
predicted. With all effects of one standard deviation 0.48 to 0.79 decide and 0.31 to 0.43 is predicted.
`tests/orchestrator/statistics/outlooks.py` prints this table.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from orchestrator.statistics.paired import PairedEstimate, deviation, half_width
from orchestrator.statistics.power import smallest_effect
from orchestrator.statistics.verdicts import MIN_REMOVAL_SEEDS, REMOVAL_LEVEL_FACTOR

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_EFFECT_PROBABILITY = 0.5
EFFECT_SPREAD = 1.0
NUM_SIMULATIONS = 2000
"""Number of simulated continuations of an experiment."""
UNIT_MULTIPLES = (0.5, 1.0, 3.0)
"""Numbers of additional units, as multiples of the present number of units."""


@dataclass(frozen=True, slots=True)
class DecisionChance:
    """Probability of a decision, and the detectable difference, after a number of additional units."""

    more: int
    """Number of additional seeds, or repeats."""
    chance: float
    """Probability that the verdict on all units is decided."""
    difference: float
    """Smallest difference that all units together detect 8 times in 10, in units of the outcome."""


def decision_chances(paired: PairedEstimate, margin: float | None = None) -> tuple[DecisionChance, ...]:
    """Return decision chances for additional units: 0.5, 1 and 3 times the present number.

    Args:
        paired: An undecided comparison with its own spread, without a prior.
        margin: Least difference that matters, in units of the outcome.
    """
    assert paired.spread is not None, "a prediction needs a variance"
    numbers = [math.ceil(times * paired.n) for times in UNIT_MULTIPLES]
    values = _simulate(paired, max(numbers))
    return tuple(
        DecisionChance(
            number,
            float(_is_decided(values[:, : paired.n + number], paired, margin).mean()),
            smallest_effect(paired.n + number, paired.family_size, paired.level)
            / math.sqrt(2)
            * paired.spread,
        )
        for number in numbers
    )


def log_odds(n: int, mean: float, squares: float) -> float:
    """Return the logarithm of the posterior odds of an effect.

    Args:
        n: Number of differences.
        mean: Mean of the differences.
        squares: Sum of squared deviations of the differences from their mean.
    """
    null_scale, prior_scale = _posterior_scales(n, mean, squares)
    prior = math.log((1 - NO_EFFECT_PROBABILITY) / NO_EFFECT_PROBABILITY)
    return prior - math.log1p(n * EFFECT_SPREAD**2) / 2 + n / 2 * math.log(null_scale / prior_scale)


def _posterior_scales(n: int, mean: float, squares: float) -> tuple[float, float]:
    """Return R0 and R1 of the module docstring."""
    return squares + n * mean**2, squares + n * mean**2 / (1 + n * EFFECT_SPREAD**2)


def _simulate(paired: PairedEstimate, additional: int) -> "NDArray[np.float64]":
    """Return the present differences followed by simulated ones, one row per simulation."""
    import numpy as np

    assert paired.spread is not None
    n, mean, g = paired.n, paired.mean, EFFECT_SPREAD**2
    deviations = (n - 1) * max(paired.spread, deviation(list(paired.differences.values()))) ** 2
    null_scale, prior_scale = _posterior_scales(n, mean, deviations)
    shares, chi, shift, noise = _random_numbers(n, additional)
    has_effect = shares < 1 / (1 + math.exp(-log_odds(n, mean, deviations)))
    spreads = np.sqrt(np.where(has_effect, prior_scale, null_scale) / chi)
    effects = np.where(
        has_effect, mean * n * g / (1 + n * g) + shift * spreads * math.sqrt(g / (1 + n * g)), 0
    )
    simulated_values = effects[:, None] + spreads[:, None] * noise
    known_values = np.broadcast_to(np.array([*paired.differences.values()]), (len(simulated_values), n))
    return np.concatenate([known_values, simulated_values], axis=1)


@lru_cache(maxsize=8)
def _random_numbers(
    n: int, additional: int
) -> "tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]":
    """Return random numbers that depend only on `n` and `additional`, so that a report is reproducible."""
    import numpy as np

    rng = np.random.default_rng(0)
    draws = max(100, min(NUM_SIMULATIONS, 4_000_000 // (n + additional)))
    shares = (rng.permutation(draws) + 0.5) / draws
    return (
        shares,
        rng.chisquare(n, draws),
        rng.standard_normal(draws),
        rng.standard_normal((draws, additional)),
    )


def _is_decided(
    values: "NDArray[np.float64]", paired: PairedEstimate, margin: float | None
) -> "NDArray[np.bool_]":
    """Return which rows of differences get a verdict from `statistics.verdicts`."""
    import numpy as np

    units = values.shape[1]
    mean = np.abs(values.mean(1))
    deviations_used = np.maximum(values.std(1, ddof=1), paired.min_spread)
    half = half_width(units, paired.family_size, paired.level) * deviations_used / math.sqrt(units)
    is_larger = mean > half
    is_decided: NDArray[np.bool_] = is_larger & _survives_removal(values, paired)
    if margin is not None:
        is_decided |= ~is_larger & (mean + half < margin)
    return is_decided


def _survives_removal(values: "NDArray[np.float64]", paired: PairedEstimate) -> "NDArray[np.bool_]":
    """Return which rows still have a difference after the removal of any single unit."""
    import numpy as np

    units = values.shape[1]
    if units < MIN_REMOVAL_SEEDS:
        return np.ones(len(values), dtype=bool)
    centred = values - values.mean(1, keepdims=True)
    means = values.mean(1, keepdims=True) - centred / (units - 1)
    squares = (centred**2).sum(1, keepdims=True) - centred**2 * units / (units - 1)
    deviations_used = np.maximum(np.sqrt(np.maximum(squares, 0) / (units - 2)), paired.min_spread)
    smallest_mean = (
        half_width(units - 1, 1, min(1.0, REMOVAL_LEVEL_FACTOR * paired.level))
        * deviations_used
        / math.sqrt(units - 1)
    )
    is_decided: NDArray[np.bool_] = (np.abs(means) >= smallest_mean).all(1)
    return is_decided
