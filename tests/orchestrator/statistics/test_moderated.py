"""Moderated variances: the equations of Smyth (2004), who is exempt, and what simulated studies decide."""

import math

import numpy as np
import pytest
from scipy import special, stats

from orchestrator.statistics.moderated import Prior, priors
from orchestrator.statistics.paired import compare, deviation
from orchestrator.statistics.verdicts import verdict
from tests.orchestrator.statistics import moderated_studies as studies
from tests.orchestrator.statistics.studies import differences, unequal

BOUND = 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / studies.STUDIES)


def by_arm(values: np.ndarray) -> dict[tuple[str, str], dict[int, float]]:
    return {(f"arm-{arm}", "score"): dict(enumerate(column)) for arm, column in enumerate(values.T.tolist())}


def found_by(values: np.ndarray) -> dict[str, Prior]:
    differences = {arm: each for (arm, _), each in by_arm(values).items()}
    return priors(differences, {arm: deviation([*each.values()]) for arm, each in differences.items()})


def test_the_prior_solves_the_equations_of_its_source():
    """Uncorrelated columns, so that nothing is changed for a shared baseline."""
    scales = np.array([0.2, 1.0, 2.0, 5.0])
    values = np.linalg.qr(np.random.default_rng(1).normal(size=(8, 5)) + 1)[0]
    values = np.linalg.qr(np.c_[np.ones(8), values])[0][:, 1:5] * scales
    prior = found_by(values)["arm-0"]
    logs = np.log(values.var(0, ddof=1)) - special.digamma(3.5) + np.log(3.5)
    assert special.polygamma(1, prior.freedom / 2) == pytest.approx(
        logs.var(ddof=1) - special.polygamma(1, 3.5)
    )
    expected = logs.mean() + special.digamma(prior.freedom / 2) - np.log(prior.freedom / 2)
    assert math.log(prior.spread**2) == pytest.approx(expected)


def test_interval_and_p_come_from_the_moderated_variance():
    values = np.random.default_rng(2).normal(size=(6, 4))
    found = compare(by_arm(values), family=4, moderated=True)["arm-0", "score"]
    assert found.prior is not None
    own, d0 = values[:, 0].std(ddof=1), found.prior.freedom
    spread = math.sqrt((d0 * found.prior.spread**2 + 5 * own**2) / (d0 + 5))
    assert found.spread == pytest.approx(spread)
    half = stats.t.isf(0.05 / 8, 5 + d0) * spread / math.sqrt(6)
    assert (found.low, found.high) == (pytest.approx(found.mean - half), pytest.approx(found.mean + half))
    p = 4 * 2 * stats.t.sf(abs(found.mean) / spread * math.sqrt(6), 5 + d0)
    assert found.p == pytest.approx(min(1.0, p))


@pytest.mark.parametrize(("units", "arms"), [(4, 4), (5, 2)])
def test_few_units_or_arms_change_nothing(units, arms):
    values = by_arm(np.random.default_rng(3).normal(size=(units, arms)))
    assert compare(values, family=arms, moderated=True) == compare(values, family=arms)


def test_wild_arms_arms_that_lack_a_unit_and_arms_without_spread_keep_their_own_variance():
    values = by_arm(np.random.default_rng(4).normal(size=(6, 8)))
    values["arm-0", "score"] = {unit: 30 * value for unit, value in values["arm-0", "score"].items()}
    del values["arm-1", "score"][3]
    values["arm-2", "score"] = dict.fromkeys(range(6), 0.5)
    found = compare(values, family=8, moderated=True)
    without = {arm for (arm, _), each in found.items() if each.prior is None}
    assert without == {"arm-0", "arm-1", "arm-2"}
    assert found["arm-0", "score"] == compare(values, family=8)["arm-0", "score"]


def test_a_shared_baseline_leaves_fewer_degrees_of_freedom_than_separate_ones():
    rng = np.random.default_rng(5)
    own = rng.normal(size=(5, 12))
    separate, shared = found_by(own)["arm-1"], found_by(own + 3 * rng.normal(size=(5, 1)))["arm-1"]
    assert shared.freedom + 4 < 0.5 * (separate.freedom + 4)
    assert separate.freedom + 4 <= 12 * 4


def test_a_verdict_leaves_out_each_unit_with_the_same_prior():
    values = np.random.default_rng(6).normal(size=(5, 4)) * 0.1
    values[:, 0] = 0.3 + 0.2 * np.array([1.0, -1.0, 0.7, -0.7, 0.0])
    plain, shared = (compare(by_arm(values), family=4, moderated=each) for each in (False, True))
    assert verdict(shared["arm-0", "score"], better="max").kind == "better"
    assert verdict(plain["arm-0", "score"], better="max").kind == "undecided"


def test_the_simulation_is_of_what_is_done():
    drawn = differences(np.random.default_rng(7).normal(size=(60, 6, 5)) * [1, 1, 3, 1, 1])
    simulated = studies.moderated(drawn, 0.3)
    for each, row in zip(drawn, simulated, strict=True):
        found = compare(by_arm(each), family=4, level=0.3, moderated=True)
        assert [made.shown for made in found.values()] == row.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("arms", studies.ARMS)
@pytest.mark.parametrize("seeds", studies.SEEDS)
def test_error_and_power_of_moderated_studies(seeds, arms):
    """The level holds unless the spreads of arms differ a lot; power is gained."""
    for law in studies.LAWS:
        _, error = studies.errors(law, seeds, arms)
        assert error <= (0.11 if law is unequal else BOUND), law.__name__
    own, shared = studies.powers(seeds, arms)
    assert shared > own + 0.05
