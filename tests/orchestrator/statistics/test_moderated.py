"""Moderated variances: equations of Smyth (2004), excluded arms and simulated decisions."""

import math

import numpy as np
import pytest
from scipy import special, stats

from orchestrator.statistics.moderated import Prior, estimate_priors
from orchestrator.statistics.paired import deviation, estimate_differences
from tests.orchestrator.statistics import moderated_studies as studies
from tests.orchestrator.statistics.studies import paired_differences, sample_unequal

ERROR_BOUND = 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / studies.STUDIES)


def values_by_arm(values: np.ndarray) -> dict[tuple[str, str], dict[int, float]]:
    return {(f"arm-{arm}", "score"): dict(enumerate(column)) for arm, column in enumerate(values.T.tolist())}


def compute_priors(values: np.ndarray) -> dict[str, Prior]:
    differences = {arm: by_seed for (arm, _), by_seed in values_by_arm(values).items()}
    return estimate_priors(
        differences, {arm: deviation([*by_seed.values()]) for arm, by_seed in differences.items()}
    )


def test_prior_solves_the_equations_of_smyth():
    """The columns are uncorrelated, so that no correction for a shared baseline applies."""
    scales = np.array([0.2, 1.0, 2.0, 5.0])
    values = np.linalg.qr(np.random.default_rng(1).normal(size=(8, 5)) + 1)[0]
    values = np.linalg.qr(np.c_[np.ones(8), values])[0][:, 1:5] * scales
    prior = compute_priors(values)["arm-0"]
    log_variances = np.log(values.var(0, ddof=1)) - special.digamma(3.5) + np.log(3.5)
    assert special.polygamma(1, prior.freedom / 2) == pytest.approx(
        log_variances.var(ddof=1) - special.polygamma(1, 3.5)
    )
    expected = log_variances.mean() + special.digamma(prior.freedom / 2) - np.log(prior.freedom / 2)
    assert math.log(prior.spread**2) == pytest.approx(expected)


def test_interval_and_p_come_from_the_moderated_variance():
    values = np.random.default_rng(2).normal(size=(6, 4))
    comparison = estimate_differences(values_by_arm(values), family=4, moderated=True)["arm-0", "score"]
    arm_deviation, prior_freedom = values[:, 0].std(ddof=1), comparison.prior.freedom
    spread = math.sqrt(
        (prior_freedom * comparison.prior.spread**2 + 5 * arm_deviation**2) / (prior_freedom + 5)
    )
    assert comparison.spread == pytest.approx(spread)
    half_width = stats.t.isf(0.05 / 8, 5 + prior_freedom) * spread / math.sqrt(6)
    assert (comparison.low, comparison.high) == (
        pytest.approx(comparison.mean - half_width),
        pytest.approx(comparison.mean + half_width),
    )
    expected_p = 4 * 2 * stats.t.sf(abs(comparison.mean) / spread * math.sqrt(6), 5 + prior_freedom)
    assert comparison.p == pytest.approx(min(1.0, expected_p))


@pytest.mark.parametrize(("units", "arms"), [(4, 4), (5, 2)])
def test_few_units_or_arms_change_nothing(units, arms):
    values = values_by_arm(np.random.default_rng(3).normal(size=(units, arms)))
    assert estimate_differences(values, family=arms, moderated=True) == estimate_differences(
        values, family=arms
    )


def test_irregular_arms_are_not_moderated():
    values = values_by_arm(np.random.default_rng(4).normal(size=(6, 8)))
    values["arm-0", "score"] = {unit: 30 * value for unit, value in values["arm-0", "score"].items()}
    del values["arm-1", "score"][3]
    values["arm-2", "score"] = dict.fromkeys(range(6), 0.5)
    comparisons = estimate_differences(values, family=8, moderated=True)
    unmoderated_arms = {arm for (arm, _), comparison in comparisons.items() if comparison.prior is None}
    assert unmoderated_arms == {"arm-0", "arm-1", "arm-2"}
    assert comparisons["arm-0", "score"] == estimate_differences(values, family=8)["arm-0", "score"]


def test_simulation_matches_estimate_differences():
    study_differences = paired_differences(np.random.default_rng(7).normal(size=(60, 6, 5)) * [1, 1, 3, 1, 1])
    is_rejected = studies.moderated_rejections(study_differences, 0.3)
    for study, expected in zip(study_differences, is_rejected, strict=True):
        comparisons = estimate_differences(values_by_arm(study), family=4, level=0.3, moderated=True)
        assert [comparison.excludes_zero for comparison in comparisons.values()] == expected.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("arms", studies.ARMS)
@pytest.mark.parametrize("seeds", studies.SEEDS)
def test_error_and_power_of_moderated_studies(seeds, arms):
    """The level holds unless the spreads of arms differ strongly; the power grows."""
    for sampler in studies.SAMPLERS:
        _, error = studies.error_rates(sampler, seeds, arms)
        assert error <= (0.11 if sampler is sample_unequal else ERROR_BOUND), sampler.__name__
    ordinary_power, moderated_power = studies.power_rates(seeds, arms)
    assert moderated_power > ordinary_power + 0.05
