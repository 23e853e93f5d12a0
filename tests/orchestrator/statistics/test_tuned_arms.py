"""With repeated searches tuned arms are decided by chance as seldom as stated, with one search more often."""

import math

import pytest

from orchestrator.statistics.paired import LEVEL
from tests.orchestrator.statistics.tuned_arms import (
    FEWEST,
    ONE_SEARCH,
    REPEATED,
    SEVERAL_SEEDS,
    STUDIES,
    SURFACES,
    rate,
)

pytestmark = pytest.mark.slow
SAMPLING_ERROR = 3 * math.sqrt(LEVEL * (1 - LEVEL) / STUDIES)


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("design", [FEWEST, SEVERAL_SEEDS, REPEATED], ids=["3x1", "4x2", "8x1"])
@pytest.mark.parametrize("arms", [1, 4])
def test_repeats_hold_the_level(surface, design, arms):
    assert rate(SURFACES[surface], design, arms) <= LEVEL + SAMPLING_ERROR


def test_repeats_hold_the_level_of_many_arms():
    assert rate(SURFACES["steep"], REPEATED, 12) <= LEVEL + SAMPLING_ERROR


@pytest.mark.parametrize("surface", ["steep", "moved optimum"])
def test_one_search_does_not_where_its_choice_matters(surface):
    assert rate(SURFACES[surface], ONE_SEARCH, 1) > 2 * LEVEL
    assert rate(SURFACES[surface], ONE_SEARCH, 4) > 4 * LEVEL


def test_short_searches_find_what_one_long_search_finds():
    assert rate(SURFACES["steep"], REPEATED, 4, effect=2.0) > 0.95
