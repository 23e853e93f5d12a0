"""Main effects and interactions of arms that are all combinations of components."""

import re
from dataclasses import replace

import pytest

from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.report.comparisons.factorial import FactorialEffect
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.types import Report
from orchestrator.statistics.paired import estimate_differences, half_width
from orchestrator.trials import OutcomeKind, Record
from tests.orchestrator.report.comparisons.test_answers import (
    NOISE,
    SEEDS,
    make_study_plan,
    make_study_record,
)
from tests.orchestrator.report.studies import with_metrics

REMOVED_COMPONENTS = {"minus-gate": ("gate",), "minus-halt": ("halt",), "minus-all": ("gate", "halt")}
GATE_EFFECT, INTERACTION = 0.06, 0.02
"""The true main effect of the gate and the true interaction of both components."""


def make_factorial_plan() -> Plan:
    study_plan = make_study_plan(
        ("baseline", *REMOVED_COMPONENTS),
        factors=("gate", "halt"),
        answer=AnswerPlan(("iid/accuracy",), 0.02, 0.05, 3),
    )
    arms = tuple(replace(arm, without=REMOVED_COMPONENTS.get(arm.name, ())) for arm in study_plan.arms)
    return replace(study_plan, arms=arms)


def true_value(name: str, seed: int) -> float:
    gate, halt = (
        1 if component not in REMOVED_COMPONENTS.get(name, ()) else -1 for component in ("gate", "halt")
    )
    index = SEEDS.index(seed)
    noise = NOISE[index] + NOISE[(index * 3 + len(REMOVED_COMPONENTS.get(name, ())) + len(name)) % 8] / 4
    return 0.7 + gate * GATE_EFFECT / 2 + gate * halt * INTERACTION / 2 + noise


def make_factorial_records(failed: tuple[str, int] = ("", 0)) -> list[Record]:
    """Return records with the true effects; the arm and seed of `failed` diverged."""
    places = [(name, seed) for name in ("baseline", *REMOVED_COMPONENTS) for seed in SEEDS]
    outcomes = {failed: OutcomeKind.DIVERGED}
    return [
        with_metrics(
            make_study_record(*place, outcomes.get(place, OutcomeKind.FINISHED)),
            {"iid/accuracy": true_value(*place)},
        )
        for place in places
    ]


def effects_by_term(report: Report) -> dict[str, FactorialEffect]:
    return {" x ".join(effect.components): effect for effect in report.factorial}


def test_estimates_match_the_true_effects() -> None:
    effects = effects_by_term(summarise(make_factorial_plan(), make_factorial_records()))
    assert list(effects) == ["gate", "halt", "gate x halt"]
    for name, value in {"gate": GATE_EFFECT, "halt": 0.0, "gate x halt": INTERACTION}.items():
        effect = effects[name]
        assert effect.estimate.n == 8
        assert effect.estimate.mean == pytest.approx(value, abs=0.002)
        assert effect.p is not None
        assert effect.estimate.low is not None
        assert effect.estimate.high is not None
        assert (effect.p <= 0.05) == (value != 0) == (effect.estimate.low > 0 or effect.estimate.high < 0)
        assert effect.lacking == ()


def test_terms_are_tested_as_a_separate_family() -> None:
    report = summarise(make_factorial_plan(), make_factorial_records())
    assert {effect.family for effect in report.factorial} == {3}
    separate_tests = estimate_differences(
        {(str(effect.components), effect.metric): dict(effect.by_seed) for effect in report.factorial},
        family=3,
    )
    for effect in report.factorial:
        assert effect.p == separate_tests[str(effect.components), effect.metric].p
    expected = {
        seed: (true_value("baseline", seed) + true_value("minus-halt", seed)) / 2
        - (true_value("minus-gate", seed) + true_value("minus-all", seed)) / 2
        for seed in SEEDS
    }
    assert dict(effects_by_term(report)["gate"].by_seed) == pytest.approx(expected)


def test_resolution_bounds_the_spread_of_a_contrast() -> None:
    constant_records = [with_metrics(record, {"iid/accuracy": 0.5}) for record in make_factorial_records()]
    shifted_records = [
        with_metrics(record, {"iid/accuracy": 0.4}) if record.arm in ("minus-gate", "minus-all") else record
        for record in constant_records
    ]
    effect = effects_by_term(summarise(make_factorial_plan(), shifted_records))["gate"]
    assert effect.estimate.mean == pytest.approx(0.1)
    assert effect.estimate.low is not None
    expected = estimate_differences(
        {("gate", "a"): {1: 0.1, 2: 0.1}}, family=1, resolutions={"a": 0.1 / 2**0.5}
    )
    # The lower bound is r / sqrt(3 * 2^k) with resolution r and k = 2 components.
    assert expected["gate", "a"].spread == pytest.approx(0.1 / 12**0.5)
    assert effect.estimate.low == pytest.approx(0.1 - half_width(8, 3) * 0.1 / 12**0.5 / 8**0.5)


def test_failed_seed_removes_the_p_of_terms() -> None:
    report = summarise(make_factorial_plan(), make_factorial_records(("minus-all", 103)))
    for effect in report.factorial:
        assert 103 not in dict(effect.by_seed)
        assert len(effect.by_seed) == 7
        assert effect.p is None
        (reason,) = effect.lacking
        assert re.search("103.*minus-all.*diverged", reason)


def test_every_cell_of_a_grid_has_separate_terms() -> None:
    plan = make_factorial_plan()
    second_cell = tuple(
        replace(
            arm, name=f"{arm.name}, width=8", reference="baseline, width=8" if arm.without else "baseline"
        )
        for arm in plan.arms
    )
    grid_plan = replace(
        plan, arms=(*plan.arms, *second_cell), answer=AnswerPlan(("iid/accuracy",), 0.02, 0.05, 7)
    )
    second_records = [
        replace(record, arm=f"{record.arm}, width=8", trial_id=f"{record.trial_id}-8")
        for record in make_factorial_records()
    ]
    report = summarise(grid_plan, [*make_factorial_records(), *second_records])
    assert {(effect.cell, effect.family) for effect in report.factorial} == {
        ("baseline", 6),
        ("baseline, width=8", 6),
    }
