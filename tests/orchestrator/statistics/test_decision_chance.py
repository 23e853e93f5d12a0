"""Chances that more seeds decide: calibrated on average over the stated prior."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from orchestrator.statistics.decision_chance import EFFECT_SPREAD, decision_chances, log_odds
from orchestrator.statistics.power import chance
from tests.orchestrator.statistics.outlooks import BINS, chances, compared, none, of_the_prior, one


def calibrated(stated, decided, deviations=4.0):
    """Whether frequencies are stated chances but for chance, in all bins."""
    for low, high in pairwise(BINS):
        own = (stated >= low) & (stated < high)
        expected, count = stated[own].sum(), own.sum()
        # What 2,000 simulations of each chance err by is far less than what one outcome does.
        error = math.sqrt((stated[own] * (1 - stated[own])).sum() + 1)
        assert abs(decided[own].sum() - expected) <= deviations * error, (low, high, count, expected)


def test_chances_are_frequencies_over_the_prior():
    stated, decided = chances(of_the_prior, 5, 4, 400)
    for place in range(stated.shape[1]):
        calibrated(stated[:, place], decided[:, place])


def test_chances_are_calibrated_with_a_margin():
    stated, decided = chances(of_the_prior, 6, 1, 200, margin=1.0)
    assert decided.any()
    for place in range(stated.shape[1]):
        calibrated(stated[:, place], decided[:, place])


def test_chance_is_small_without_effects():
    stated, decided = chances(none, 5, 4, 300)
    assert decided[:, 1].mean() < 0.04
    assert stated[:, 1].mean() < 0.1


def test_the_odds_of_an_effect_as_by_quadrature():
    values = np.array([0.9, 1.2, 0.5])
    n, mean, squares = 3, values.mean(), ((values - values.mean()) ** 2).sum()
    g = EFFECT_SPREAD**2

    def marginal(variance_of_mean):
        def integrand(log_sigma):
            sigma = math.exp(log_sigma)
            rest = sigma ** (1 - n) * math.exp(-squares / (2 * sigma**2))
            return rest * stats.norm(0, sigma * math.sqrt(variance_of_mean)).pdf(mean)

        return integrate.quad(integrand, -6, 6, limit=200)[0]

    expected = marginal(1 / n + g) / marginal(1 / n)
    assert math.exp(log_odds(n, mean, squares)) == pytest.approx(expected, rel=1e-6)


def test_the_difference_is_the_one_found_8_times_in_10():
    found = compared(np.array([0.3, -0.2, 0.4, 0.1, -0.3]), 3)
    for decision_chance in decision_chances(found):
        runs = decision_chance.difference / found.spread * math.sqrt(2)
        assert chance(runs, 5 + decision_chance.more, 3) == pytest.approx(0.8, abs=1e-4)


@pytest.mark.slow
def test_chances_are_calibrated_over_many_experiments():
    stated, decided = chances(of_the_prior, 8, 4, 1200)
    for place in range(stated.shape[1]):
        calibrated(stated[:, place], decided[:, place])
    assert abs(stated.mean() - decided.mean()) < 0.02
    stated, decided = chances(one, 8, 4, 200)
    assert decided[:, 2].mean() > 0.9
    assert (stated[:, 2] > stated[:, 0]).mean() > 0.9
