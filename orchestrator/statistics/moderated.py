"""Moderated t statistics: average the variance of a comparison with a prior estimated from all arms.

Empirical Bayes as in Smyth (2004), "Linear models and empirical Bayes methods for assessing differential
expression in microarray experiments", Statistical Applications in Genetics and Molecular Biology 3(1),
implemented in limma. A variance with d degrees of freedom has the prior s0^2 with d0 degrees of freedom, and

- the moderated variance is (d0 s0^2 + d s^2) / (d0 + d), section 3;
- its t statistic has d0 + d degrees of freedom, section 3;
- with e = log s^2 - digamma(d / 2) + log(d / 2) of each arm and trigamma(d0 / 2) = var(e) - trigamma(d / 2),
  log s0^2 = mean(e) + digamma(d0 / 2) - log(d0 / 2), section 6.2; d0 is infinite if the right side is not
  positive.

Three changes adapt the method to a few arms with a shared baseline:

- The differences of two arms from one baseline are correlated, so their variances are more similar than by
  chance. With c for the mean squared correlation of two differences, var(e) is (1 - c) trigamma(d / 2) on
  average if all true variances are equal. This value replaces trigamma(d / 2) in the second equation.
- All k variances together have at most k d / (1 + (k - 1) c) degrees of freedom, which is also the upper
  bound of d0 + d. limma uses k d.
- An arm whose variance is far above the prior of the other arms (F test at level `OUTLIER_LEVEL`) keeps its
  own variance, and the prior is estimated from the others. Phipson et al. (2016) lower the prior degrees of
  freedom of such arms instead, which needs more arms than a sweep has.

`python -m tests.orchestrator.statistics.moderated_studies` prints the error and power in simulations.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MIN_UNITS = 5
"""Minimum number of seeds, or repeats, for moderation of variances."""
MIN_ARMS = 3
"""Minimum number of variances for the estimate of a prior."""
OUTLIER_LEVEL = 0.01
"""Level of the test for an arm that varies more than the others."""
INFINITE_DOF = 1e8
"""Degrees of freedom from which on a prior counts as exactly known."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Prior of the variance of an arm, estimated from the variances of all arms."""

    freedom: float
    """Prior degrees of freedom."""
    spread: float
    """Square root of the prior variance."""

    def moderate(self, spread: float, freedom: int) -> float:
        """Return the moderated standard deviation.

        Args:
            spread: Sample standard deviation.
            freedom: Degrees of freedom of `spread`.
        """
        squares = self.freedom * self.spread**2 + freedom * spread**2
        return math.sqrt(squares / (self.freedom + freedom))


def estimate_priors(
    differences: Mapping[str, Mapping[int, float]], spreads: Mapping[str, float]
) -> dict[str, Prior]:
    """Return the prior of every arm whose variance is to be moderated.

    An arm has no prior if it lacks a unit that others have, does not vary, or varies far more than the
    others. No arm has a prior with fewer than `MIN_UNITS` units or fewer than `MIN_ARMS` remaining arms.

    Args:
        differences: By arm, the differences of one outcome by unit.
        spreads: By arm, the sample standard deviation of its differences.
    """
    units = max((frozenset(values) for values in differences.values()), key=len, default=frozenset[int]())
    complete_arms = [
        arm for arm, values in differences.items() if frozenset(values) == units and spreads.get(arm)
    ]
    if len(units) < MIN_UNITS or len(complete_arms) < MIN_ARMS:
        return {}
    freedom = len(units) - 1
    variances = {arm: spreads[arm] ** 2 for arm in complete_arms}
    regular_arms = [arm for arm in complete_arms if not _is_outlier(arm, variances, freedom)]
    if len(regular_arms) < MIN_ARMS:
        return {}
    import numpy as np

    order = sorted(units)
    values = np.array([[differences[arm][unit] for unit in order] for arm in regular_arms])
    correlation = _mean_squared_correlation(values)
    prior = _estimate_prior([variances[arm] for arm in regular_arms], freedom, correlation)
    max_freedom = len(regular_arms) * freedom / (1 + (len(regular_arms) - 1) * correlation)
    capped_prior = Prior(max(0.0, min(prior.freedom, max_freedom - freedom)), prior.spread)
    return dict.fromkeys(regular_arms, capped_prior)


def _is_outlier(arm: str, variances: Mapping[str, float], freedom: int) -> bool:
    """Return whether the variance of an arm is improbably large under the prior of the other arms."""
    from scipy import special

    prior = _estimate_prior(
        [variance for other_arm, variance in variances.items() if other_arm != arm], freedom, 0.0
    )
    ratio = variances[arm] / prior.spread**2
    return bool(special.fdtrc(freedom, min(prior.freedom, INFINITE_DOF), ratio) < OUTLIER_LEVEL)


def _mean_squared_correlation(values: "NDArray[np.float64]") -> float:
    """Return the mean of the squared correlations of all pairs of rows."""
    import numpy as np

    squares = np.corrcoef(values) ** 2
    arms = len(values)
    return float((squares.sum() - arms) / (arms * (arms - 1)))


def _estimate_prior(variances: Sequence[float], freedom: int, correlation: float) -> Prior:
    """Return the prior by Smyth (2004), section 6.2.

    Args:
        variances: Sample variances of at least two arms.
        freedom: Degrees of freedom of each variance.
        correlation: Mean squared correlation between the differences of two arms.
    """
    from scipy import special

    half = freedom / 2
    logs = [math.log(variance) - float(special.digamma(half)) + math.log(half) for variance in variances]
    mean = math.fsum(logs) / len(logs)
    log_variance = math.fsum((logarithm - mean) ** 2 for logarithm in logs) / (len(logs) - 1)
    freedom_of_prior = 2 * _inverse_trigamma(
        log_variance - float(special.polygamma(1, half)) * (1 - correlation)
    )
    if freedom_of_prior >= INFINITE_DOF:
        return Prior(math.inf, math.exp(mean / 2))
    return Prior(
        freedom_of_prior,
        math.exp((mean + float(special.digamma(freedom_of_prior / 2)) - math.log(freedom_of_prior / 2)) / 2),
    )


def _inverse_trigamma(value: float) -> float:
    """Return the argument at which the trigamma function is `value`; infinite if `value` is about 0."""
    from scipy import optimize, special

    if value <= 1 / INFINITE_DOF:
        return math.inf
    # 1 / x < trigamma(x) < 1 / x + 1 / x^2
    high = 1 / value + 1 / math.sqrt(value)
    return float(optimize.brentq(lambda x: special.polygamma(1, x) - value, high / 4, high, rtol=1e-10))
