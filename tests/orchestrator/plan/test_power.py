"""The p-values of a plan are those that counting sign patterns gives."""

from itertools import product

import pytest

from orchestrator.plan.power import ALPHA, power, seeds_needed, smallest_p
from orchestrator.plan.types import ConfirmPlan


@pytest.mark.parametrize("seeds", range(1, 9))
def test_smallest_p_by_counting_sign_patterns(seeds: int) -> None:
    """All differences are one: how many sign patterns have a mean at least as far from zero?"""
    means = [abs(sum(signs)) for signs in product((-1, 1), repeat=seeds)]
    assert smallest_p(seeds) == sum(mean >= seeds for mean in means) / len(means)


@pytest.mark.parametrize("comparisons", [1, 2, 4, 11])
def test_one_seed_fewer_than_needed_shows_nothing(comparisons: int) -> None:
    needed = seeds_needed(comparisons)
    assert comparisons * smallest_p(needed) <= ALPHA < comparisons * smallest_p(needed - 1)


def test_thousands_of_seeds_are_planned() -> None:
    """2^1024 is no floating-point number."""
    assert smallest_p(1024) == 2.0**-1023
    assert power(confirm(3000), 4).smallest_p == 0.0


def confirm(seeds: int) -> ConfirmPlan:
    return ConfirmPlan(1, tuple(range(seeds)), ())


def test_too_few_seeds_are_said_to_show_nothing() -> None:
    found = power(confirm(3), 4)
    assert (found.smallest_p, found.smallest_p_holm) == (0.25, 1.0)
    assert "no effect, however large, can be significant at 0.05; 8 seeds are the fewest" in found.sentence


def test_enough_seeds_are_said_to_show_an_effect() -> None:
    found = power(confirm(8), 4)
    assert found.smallest_p_holm == pytest.approx(0.03125)
    assert "an effect can be significant at 0.05 if all seeds agree" in found.sentence
    assert "fewer seeds could not" in found.sentence
    assert "7 seeds would be the fewest" in power(confirm(10), 3).sentence


def test_without_arms_there_is_nothing_to_compare() -> None:
    assert (
        power(confirm(1), 0).sentence
        == "With no arm beside the baseline, 1 seed show its spread and no effect."
    )
