"""What a look decides, what it leaves open, and what it withholds."""

import numpy as np
import pytest

from orchestrator.statistics.paired import compare
from orchestrator.statistics.sequential import LOOK_SHARE, Question, chance_left, decide_arms, looks

SEEDS = tuple(range(101, 109))
NOISE = np.random.default_rng(1).normal(size=(3, len(SEEDS)))


def question(margin=None, outcomes=("test/score",)):
    better = dict.fromkeys(outcomes, "max")
    return Question({"a": "base", "b": "base"}, outcomes, better, margin, 0.05, 2 * len(outcomes), 8)


def study(a=0.0, b=0.0, spread=0.1, outcome="test/score"):
    shifts = {"base": 0.0, "a": a, "b": b}
    return {
        (arm, outcome): dict(zip(SEEDS, shift + spread * noise, strict=True))
        for (arm, shift), noise in zip(shifts.items(), NOISE, strict=True)
    }


def ended(values, first, failed=None, asked=None):
    return decide_arms(asked or question(), values, SEEDS[:first], ["a", "b"], failed or {})


def decided(*study, **parts):
    """Those of which something is certain."""
    return {
        arm: found
        for arm, found in ended(*study, **parts).items()
        if all(each.kind != "undecided" for each in found.verdicts.values())
    }


def test_looks_begin_with_three_seeds_and_end_before_the_last():
    assert [*looks(8)] == [3, 4, 5, 6, 7]
    assert [*looks(3)] == []


def test_large_effects_are_decided_early():
    found = decided(study(a=5.0), 4)
    assert set(found) == {"a"}
    assert found["a"].verdicts["test/score"].kind == "better"
    assert (found["a"].seeds, found["a"].level) == (4, 0.05 * LOOK_SHARE)
    paired = found["a"].found["test/score"]
    assert paired.p <= paired.level == 0.05 * LOOK_SHARE
    assert paired.low > 0
    assert decided(study(a=-5.0), 4)["a"].verdicts["test/score"].kind == "worse"


def test_a_look_is_stricter_than_the_end():
    values = study(a=0.4)
    assert not decided(values, 3)
    strict = question()
    loose = Question(strict.references, strict.outcomes, strict.better, None, 0.05 / LOOK_SHARE * 0.999, 2, 8)
    assert set(decide_arms(loose, values, SEEDS[:3], ["a", "b"], {})) == {"a"}


def test_no_difference_larger_than_the_margin_is_a_decision_too():
    found = decided(study(spread=0.001), 5, asked=question(margin=1.0))
    assert {each.verdicts["test/score"].kind for each in found.values()} == {"no difference"}
    assert not decided(study(spread=0.001), 5)


def test_hopeless_arms_are_stopped():
    values = study(a=5.0, b=0.0)
    found = ended(values, 5)["b"].verdicts["test/score"]
    assert found.kind == "undecided"
    assert found.text == "undecided: all 8 seeds would hardly decide it"
    assert "b" not in ended(study(b=0.15), 5), "it may still be shown"


def test_remaining_chance_matches_simulations():
    rng, left, reached = np.random.default_rng(4), [], []
    for _ in range(400):
        drawn = dict(enumerate(map(float, rng.normal(size=8) + rng.uniform(0, 2))))
        first = {seed: drawn[seed] for seed in range(5)}
        (now,), (end,) = (compare({("a", "x"): each}, family=1).values() for each in (first, drawn))
        left.append(chance_left(now, 8, None))
        reached.append(end.shown)
    chances, shown = np.array(left), np.array(reached)
    for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.0)):
        among = (chances >= low) & (chances < high)
        assert low - 0.1 < shown[among].mean() < high + 0.1, (low, high)


@pytest.mark.parametrize("arm", ["a", "base"])
def test_a_failed_seed_withholds_the_decision(arm):
    values = study(a=5.0)
    del values[arm, "test/score"][102]
    assert not decided(values, 5, {arm: {102}})
    assert not decided(values, 5), "nor is anything decided without its value"
    assert set(decided(study(a=5.0), 5, {arm: {107}})) == {"a"}, "later seeds are not looked at"


def test_later_seeds_change_no_look():
    values = study(a=5.0, b=0.3)
    early = {key: {seed: each[seed] for seed in SEEDS[:4]} for key, each in values.items()}
    assert decided(values, 4) == decided(early, 4)


def test_all_primary_outcomes_must_be_certain():
    both = ("test/score", "far/score")
    values = study(a=5.0) | study(a=0.0, outcome="far/score")
    assert not decided(values, 5, asked=question(outcomes=both))
    values = study(a=5.0) | study(a=5.0, outcome="far/score")
    assert set(decided(values, 5, asked=question(outcomes=both))) == {"a"}


def test_arms_that_stopped_before_still_bound_the_spread_of_the_others():
    values = study(a=5.0, b=2.0)
    values["b", "test/score"] = dict(zip(SEEDS, 2.0 + 0.1 * NOISE[0] + 1e-6 * NOISE[2], strict=True))
    stopped = {key: dict(each) for key, each in values.items()}
    stopped["a", "test/score"] = {seed: values["a", "test/score"][seed] for seed in SEEDS[:3]}
    found = decide_arms(question(), stopped, SEEDS[:5], ["b"], {})
    assert found["b"].found["test/score"].raised
