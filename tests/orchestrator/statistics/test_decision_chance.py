"""Chances that more seeds decide are calibrated on average over the prior."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from orchestrator.statistics.decision_chance import EFFECT_SPREAD, decision_chances, log_odds
from orchestrator.statistics.power import chance
from tests.orchestrator.statistics.outlooks import (
    compare_values,
    draw_no_effect,
    draw_prior_effect,
    simulate_chances,
)

BINS = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)


def require_calibration(stated_chances, is_decided, deviations=4.0):
    """Require that frequencies match the stated chances up to sampling error in all bins."""
    for low, high in pairwise(BINS):
        is_in_bin = (stated_chances >= low) & (stated_chances < high)
        expected, count = stated_chances[is_in_bin].sum(), is_in_bin.sum()
        # The simulation error of a chance is far smaller than the error of one outcome.
        error = math.sqrt((stated_chances[is_in_bin] * (1 - stated_chances[is_in_bin])).sum() + 1)
        assert abs(is_decided[is_in_bin].sum() - expected) <= deviations * error, (low, high, count, expected)


def test_chances_are_frequencies_over_the_prior():
    stated_chances, is_decided = simulate_chances(draw_prior_effect, 5, 4, 400)
    for column in range(stated_chances.shape[1]):
        require_calibration(stated_chances[:, column], is_decided[:, column])


def test_chance_is_small_without_effects():
    stated_chances, is_decided = simulate_chances(draw_no_effect, 5, 4, 300)
    assert is_decided[:, 1].mean() < 0.04
    assert stated_chances[:, 1].mean() < 0.1


def test_log_odds_match_quadrature():
    values = np.array([0.9, 1.2, 0.5])
    count, mean, sum_of_squares = 3, values.mean(), ((values - values.mean()) ** 2).sum()
    prior_variance = EFFECT_SPREAD**2

    def marginal_likelihood(variance_of_mean):
        def integrand(log_sigma):
            sigma = math.exp(log_sigma)
            density = sigma ** (1 - count) * math.exp(-sum_of_squares / (2 * sigma**2))
            return density * stats.norm(0, sigma * math.sqrt(variance_of_mean)).pdf(mean)

        return integrate.quad(integrand, -6, 6, limit=200)[0]

    expected = marginal_likelihood(1 / count + prior_variance) / marginal_likelihood(1 / count)
    assert math.exp(log_odds(count, mean, sum_of_squares)) == pytest.approx(expected, rel=1e-6)


def test_stated_difference_is_found_with_probability_0_8():
    comparison = compare_values(np.array([0.3, -0.2, 0.4, 0.1, -0.3]), 3)
    for decision_chance in decision_chances(comparison):
        effect = decision_chance.difference / comparison.spread * math.sqrt(2)
        assert chance(effect, 5 + decision_chance.more, 3) == pytest.approx(0.8, abs=1e-4)
