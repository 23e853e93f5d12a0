"""Power of seeds agrees with SciPy's non-central t and with simulated studies."""

import math

import pytest
from scipy import stats

from orchestrator.statistics.paired import half_width
from orchestrator.statistics.power import chance, seeds_needed, smallest_effect
from tests.orchestrator.statistics import studies


@pytest.mark.parametrize(("effect", "seeds", "family"), [(0.0, 8, 4), (2.0, 8, 4), (3.0, 4, 1)])
def test_chance_matches_the_non_central_t(effect: float, seeds: int, family: int) -> None:
    critical_value, noncentrality = half_width(seeds, family), effect / math.sqrt(2) * math.sqrt(seeds)
    scipy_chance = stats.nct.sf(critical_value, seeds - 1, noncentrality) + stats.nct.cdf(
        -critical_value, seeds - 1, noncentrality
    )
    assert chance(effect, seeds, family) == pytest.approx(scipy_chance, abs=1e-3)


def test_smallest_effect_has_power_0_8() -> None:
    effect = smallest_effect(8, 4)
    assert chance(effect, 8, 4) == pytest.approx(0.8, abs=1e-5)
    assert studies.power_by_procedure(effect, 8, 4)["verdicts"] == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(("effect", "family"), [(0.3, 4), (1.0, 1), (2.0, 15), (6.0, 40)])
def test_seeds_needed_is_the_smallest_sufficient_number(effect: float, family: int) -> None:
    num_seeds = seeds_needed(effect, family)
    assert num_seeds == next(seeds for seeds in range(3, 1001) if chance(effect, seeds, family) >= 0.8)


def test_seeds_needed_lies_between_3_and_1000() -> None:
    assert seeds_needed(1e9, 1) == 3
    assert seeds_needed(0.001, 4) is None
