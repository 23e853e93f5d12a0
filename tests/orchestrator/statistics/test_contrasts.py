"""Main effects and interactions agree with known effects."""

from itertools import combinations

import pytest

from orchestrator.statistics.contrasts import effect_contrasts

FACTORS = ("gate", "halt", "transition")
SUBSETS = [frozenset(combination) for size in range(4) for combination in combinations(FACTORS, size)]


def value_of(removed, seed):
    """Return a value with known effects: gate 0.2, halt 0.1 and their interaction 0.04."""
    gate, halt = "gate" not in removed, "halt" not in removed
    return 0.5 + 0.2 * gate + 0.1 * halt + 0.04 * (gate and halt) + seed / 100


def test_contrasts_equal_the_known_effects_in_every_seed():
    effects = effect_contrasts(
        {removed: {seed: value_of(removed, seed) for seed in (1, 2, 3)} for removed in SUBSETS}, FACTORS
    )
    expected = {("gate",): 0.22, ("halt",): 0.12, ("transition",): 0.0, ("gate", "halt"): 0.02}
    for term, by_seed in effects.items():
        assert by_seed == {seed: pytest.approx(expected.get(term, 0.0), abs=1e-12) for seed in (1, 2, 3)}


def test_contrasts_exclude_incomplete_seeds_and_need_all_arms():
    values = {removed: {seed: value_of(removed, seed) for seed in (1, 2)} for removed in SUBSETS}
    del values[frozenset({"gate"})][2]
    assert all(set(by_seed) == {1} for by_seed in effect_contrasts(values, FACTORS).values())
    del values[frozenset({"gate"})]
    assert effect_contrasts(values, FACTORS) == {}


def test_rounding_errors_are_no_effect():
    values = {frozenset(): {1: 0.1 + 0.2}, frozenset("a"): {1: 0.3}}
    assert effect_contrasts(values, ["a"]) == {("a",): {1: 0.0}}
