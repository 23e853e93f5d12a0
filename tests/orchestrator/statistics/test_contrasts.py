"""Main effects and interactions, against values that are made of known ones."""

from itertools import combinations

import pytest

from orchestrator.statistics.contrasts import contrasts, terms

FACTORS = ("gate", "halt", "transition")
SUBSETS = [frozenset(combination) for size in range(4) for combination in combinations(FACTORS, size)]


def value(away, seed):
    """A gate is worth 0.2, halting 0.1 and 0.04 more with a gate; seeds shift all."""
    gate, halt = "gate" not in away, "halt" not in away
    return 0.5 + 0.2 * gate + 0.1 * halt + 0.04 * (gate and halt) + seed / 100


def test_terms_are_main_effects_then_interactions():
    assert list(terms(FACTORS))[:4] == [("gate",), ("halt",), ("transition",), ("gate", "halt")]
    assert len(list(terms(FACTORS))) == 7


def test_effects_that_were_put_in_are_found_in_every_seed():
    found = contrasts({away: {seed: value(away, seed) for seed in (1, 2, 3)} for away in SUBSETS}, FACTORS)
    expected = {("gate",): 0.22, ("halt",): 0.12, ("transition",): 0.0, ("gate", "halt"): 0.02}
    for term, by_seed in found.items():
        assert by_seed == {seed: pytest.approx(expected.get(term, 0.0), abs=1e-12) for seed in (1, 2, 3)}


def test_a_seed_that_one_arm_lacks_is_left_out_and_a_missing_arm_leaves_nothing():
    values = {away: {seed: value(away, seed) for seed in (1, 2)} for away in SUBSETS}
    del values[frozenset({"gate"})][2]
    assert all(set(by_seed) == {1} for by_seed in contrasts(values, FACTORS).values())
    del values[frozenset({"gate"})]
    assert contrasts(values, FACTORS) == {}


def test_unknown_component_is_an_error():
    with pytest.raises(ValueError, match=r"arms must remove some of gate, got \[\['halt'\]\]"):
        contrasts({frozenset({"halt"}): {1: 0.5}}, ("gate",))


def test_rounding_errors_are_no_effect():
    values = {frozenset(): {1: 0.1 + 0.2}, frozenset("a"): {1: 0.3}}
    assert contrasts(values, ["a"]) == {("a",): {1: 0.0}}
