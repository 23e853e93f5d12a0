"""Repeated searches hold the level for tuned arms; single searches do not."""

import math

import pytest

from orchestrator.statistics.paired import LEVEL
from tests.orchestrator.statistics.tuned_arms import (
    EIGHT_REPEATS,
    ONE_SEARCH,
    STUDIES,
    SURFACES,
    THREE_REPEATS,
    TWO_SEEDS_EACH,
    decision_rate,
)

pytestmark = pytest.mark.slow
SAMPLING_ERROR = 3 * math.sqrt(LEVEL * (1 - LEVEL) / STUDIES)


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("design", [THREE_REPEATS, TWO_SEEDS_EACH], ids=["3x1", "4x2"])
@pytest.mark.parametrize("arms", [1, 4])
def test_repeats_hold_the_level(surface, design, arms):
    assert decision_rate(SURFACES[surface], design, arms) <= LEVEL + SAMPLING_ERROR


def test_repeats_hold_the_level_of_many_arms():
    assert decision_rate(SURFACES["steep"], EIGHT_REPEATS, 12) <= LEVEL + SAMPLING_ERROR


@pytest.mark.parametrize("surface", ["steep", "moved optimum"])
def test_single_search_exceeds_the_level_if_its_choice_matters(surface):
    assert decision_rate(SURFACES[surface], ONE_SEARCH, 4) > 4 * LEVEL


def test_repeated_short_searches_keep_the_power():
    assert decision_rate(SURFACES["steep"], EIGHT_REPEATS, 4, effect=2.0) > 0.95
