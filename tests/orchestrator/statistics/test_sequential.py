"""Decisions of an interim look, open arms and withheld verdicts."""

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.statistics.paired import estimate_differences
from orchestrator.statistics.sequential import (
    LOOK_LEVEL_SHARE,
    LookSetup,
    decide_arms,
    decision_probability,
    look_sizes,
)

SEEDS = tuple(range(101, 109))
NOISE = np.random.default_rng(1).normal(size=(3, len(SEEDS)))


def make_question(margin=None, outcomes=("test/score",)):
    better = dict.fromkeys(outcomes, "max")
    return LookSetup({"a": "base", "b": "base"}, outcomes, better, margin, 0.05, 2 * len(outcomes), 8)


def make_study_values(effect_a=0.0, effect_b=0.0, spread=0.1, outcome="test/score"):
    shifts = {"base": 0.0, "a": effect_a, "b": effect_b}
    return {
        (arm, outcome): dict(zip(SEEDS, shift + spread * noise, strict=True))
        for (arm, shift), noise in zip(shifts.items(), NOISE, strict=True)
    }


def look_after(values, num_seeds, failed_seeds=None, question=None):
    return decide_arms(question or make_question(), values, SEEDS[:num_seeds], ["a", "b"], failed_seeds or {})


def decisions_after(*positional, **options):
    """Return the arms that the look decides."""
    return {
        arm: decision
        for arm, decision in look_after(*positional, **options).items()
        if all(verdict.kind != "undecided" for verdict in decision.verdicts.values())
    }


def test_looks_begin_with_three_seeds_and_end_before_the_last():
    assert [*look_sizes(8)] == [3, 4, 5, 6, 7]
    assert [*look_sizes(3)] == []


def test_large_effects_are_decided_early():
    decisions = decisions_after(make_study_values(effect_a=5.0), 4)
    assert set(decisions) == {"a"}
    assert decisions["a"].verdicts["test/score"].kind == "better"
    assert (decisions["a"].num_seeds, decisions["a"].level) == (4, 0.05 * LOOK_LEVEL_SHARE)


def test_look_is_stricter_than_the_end():
    values = make_study_values(effect_a=0.4)
    assert not decisions_after(values, 3)
    loose_question = replace(make_question(), level=0.05 / LOOK_LEVEL_SHARE * 0.999)
    assert set(decide_arms(loose_question, values, SEEDS[:3], ["a", "b"], {})) == {"a"}


def test_difference_within_the_margin_is_a_decision():
    decisions = decisions_after(make_study_values(spread=0.001), 5, question=make_question(margin=1.0))
    assert {verdict.verdicts["test/score"].kind for verdict in decisions.values()} == {"no difference"}
    assert not decisions_after(make_study_values(spread=0.001), 5)


def test_hopeless_arms_are_stopped():
    values = make_study_values(effect_a=5.0, effect_b=0.0)
    verdict = look_after(values, 5)["b"].verdicts["test/score"]
    assert (verdict.kind, "8 seeds" in verdict.text) == ("undecided", True)


def test_remaining_chance_matches_simulations():
    rng, stated_chances, is_reached = np.random.default_rng(4), [], []
    for _ in range(400):
        all_values = dict(enumerate(map(float, rng.normal(size=8) + rng.uniform(0, 2))))
        first_values = {seed: all_values[seed] for seed in range(5)}
        (comparison,), (final_comparison,) = (
            estimate_differences({("a", "x"): values}, family=1).values()
            for values in (first_values, all_values)
        )
        stated_chances.append(decision_probability(comparison, 8, None))
        is_reached.append(final_comparison.excludes_zero)
    chances, is_shown = np.array(stated_chances), np.array(is_reached)
    for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.0)):
        is_in_bin = (chances >= low) & (chances < high)
        assert low - 0.1 < is_shown[is_in_bin].mean() < high + 0.1, (low, high)


@pytest.mark.parametrize("arm", ["a", "base"])
def test_failed_seed_withholds_the_decision(arm):
    values = make_study_values(effect_a=5.0)
    del values[arm, "test/score"][102]
    assert not decisions_after(values, 5, {arm: {102}})
    assert not decisions_after(values, 5), "a missing value prevents the decision"
    assert set(decisions_after(make_study_values(effect_a=5.0), 5, {arm: {107}})) == {"a"}, (
        "the look ignores later seeds"
    )


def test_later_seeds_do_not_change_a_look():
    values = make_study_values(effect_a=5.0, effect_b=0.3)
    early_values = {key: {seed: by_seed[seed] for seed in SEEDS[:4]} for key, by_seed in values.items()}
    assert decisions_after(values, 4) == decisions_after(early_values, 4)


def test_all_primary_outcomes_must_be_decided():
    outcomes = ("test/score", "far/score")
    values = make_study_values(effect_a=5.0) | make_study_values(effect_a=0.0, outcome="far/score")
    assert not decisions_after(values, 5, question=make_question(outcomes=outcomes))
    values = make_study_values(effect_a=5.0) | make_study_values(effect_a=5.0, outcome="far/score")
    assert set(decisions_after(values, 5, question=make_question(outcomes=outcomes))) == {"a"}
