"""Simulated studies without and with effects: error rates and power of the report."""

import math

import pytest

from tests.orchestrator.statistics import studies

pytestmark = pytest.mark.slow

ERROR_BOUND = 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / studies.STUDIES)
"""The level plus the sampling error of 2,000 studies, exceeded by chance once in 25 runs of 168 tests."""


@pytest.mark.parametrize("arms", studies.ARMS)
@pytest.mark.parametrize("sampler", studies.SAMPLERS, ids=lambda sampler: sampler.__name__)
def test_verdicts_hold_the_level_without_effects(sampler: studies.Sampler, arms: int) -> None:
    for seeds in studies.SEEDS:
        interval_error, verdict_error = studies.family_wise_errors(sampler, seeds, arms)
        assert verdict_error <= interval_error <= ERROR_BOUND, (seeds, interval_error)


def test_verdicts_have_more_power_than_sign_flips() -> None:
    for effect in (1.0, 2.0, 3.0):
        power = studies.power_by_procedure(effect, seeds=8, arms=4)
        assert power["verdicts"] > power["sign flips, Holm"] + 0.05, (effect, power)
    power_of_four_seeds = studies.power_by_procedure(3.0, seeds=4, arms=4)
    assert power_of_four_seeds["verdicts"] > 0.3
    assert power_of_four_seeds["sign flips, Holm"] == 0.0


def test_collapsing_seeds_raise_the_error_rate() -> None:
    """Reports therefore show every seed, and notes state the chance of an unseen collapse."""
    error_by_seeds = {
        seeds: studies.family_wise_errors(studies.sample_collapsing, seeds, 1)[0] for seeds in (4, 8, 16)
    }
    assert error_by_seeds[4] > error_by_seeds[8] > error_by_seeds[16] > 0.05


@pytest.mark.parametrize("arms", studies.ARMS)
def test_arms_that_differ_by_the_margin_are_not_called_equal(arms: int) -> None:
    """Two one-sided tests use half of the arm's share of the level each."""
    bound = 0.025 + 3.5 * math.sqrt(0.025 * 0.975 / studies.STUDIES)
    for seeds in studies.SEEDS:
        for margin in (1.0, 5.0, 50.0):
            assert studies.equality_error(seeds, arms, margin) <= bound, (seeds, margin)
