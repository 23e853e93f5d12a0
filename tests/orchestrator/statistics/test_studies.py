"""A/A studies and studies with an effect, 2,000 each: what the claims of a report are worth."""

import math

import pytest

from tests.orchestrator.statistics import studies

pytestmark = pytest.mark.slow

BOUND = 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / studies.STUDIES)
"""Nominal and what 2,000 studies err by: in 168 of them that much more happens by chance once in 25 runs."""


@pytest.mark.parametrize("arms", studies.ARMS)
@pytest.mark.parametrize("kind", studies.KINDS, ids=lambda kind: kind.__name__)
def test_studies_without_effects_show_none(kind: object, arms: int) -> None:
    chosen = studies.KINDS[studies.KINDS.index(kind)]  # type: ignore[arg-type]
    for seeds in studies.SEEDS:
        intervals, verdicts = studies.family_wise(chosen, seeds, arms)
        assert verdicts <= intervals <= BOUND, (seeds, intervals)


def test_more_is_found_than_by_flipping_signs() -> None:
    for effect in (1.0, 2.0, 3.0):
        found = studies.found_effects(effect, seeds=8, arms=4)
        assert found["verdicts"] > found["sign flips, Holm"] + 0.05, (effect, found)
    at_four = studies.found_effects(3.0, seeds=4, arms=4)
    assert at_four["verdicts"] > 0.3
    assert at_four["sign flips, Holm"] == 0.0


def test_no_test_of_means_withstands_seeds_that_collapse_now_and_then() -> None:
    """Which is why every seed is shown and the notes say how often that goes unseen."""
    wrong = {seeds: studies.family_wise(studies.collapsing, seeds, 1)[0] for seeds in (4, 8, 16)}
    assert wrong[4] > wrong[8] > wrong[16] > 0.05


@pytest.mark.parametrize("arms", studies.ARMS)
def test_arms_that_differ_by_the_margin_are_not_called_equal(arms: int) -> None:
    """Two one-sided tests, each at half of an arm's share of the level."""
    bound = 0.025 + 3.5 * math.sqrt(0.025 * 0.975 / studies.STUDIES)
    for seeds in studies.SEEDS:
        for margin in (1.0, 5.0, 50.0):
            assert studies.equal_at_the_margin(seeds, arms, margin) <= bound, (seeds, margin)
