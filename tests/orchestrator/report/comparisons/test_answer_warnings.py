"""Warnings before the answer: different search choices, several changed fields, one finished trial."""

from dataclasses import replace

import pytest

from orchestrator.plan.types import AnswerPlan, Arm, Change, SearchPlan
from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.comparisons.answer_warnings import answer_warnings
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.types import Report
from orchestrator.spec.section import Objective
from orchestrator.trials import OutcomeKind, PlannedTrial, Record
from search_spaces.dimensions import Choice, Dimension, Float, Space
from tests.orchestrator.report.comparisons.test_answers import (
    EFFECTS,
    METRICS,
    make_study_plan,
    make_study_records,
)
from tests.orchestrator.report.comparisons.test_untested import last_value
from tests.orchestrator.report.studies import with_metrics

DEPTH = replace(METRICS[1], is_cost=True)
WEIGHT = Dimension("train.ponder_weight", Choice((0.001, 0.01)))
RATE = Dimension("train.lr", Float(1e-4, 1e-2, log=True))


def make_search_plan(metric: str = "valid/accuracy", repeats: int = 1) -> SearchPlan:
    return SearchPlan(2, {"name": "tpe"}, None, (Objective(metric=metric, goal="max"),), 0, repeats)


def make_arms(*dimensions: Dimension) -> tuple[Arm, ...]:
    arms_with_space = (replace(arm, space=Space(dimensions)) for arm in make_study_plan().arms)
    return tuple(arms_with_space)


def add_layer(trial_records: list[Record]) -> list[Record]:
    """Return records in which one arm computes one layer more in every seed."""
    return [
        with_metrics(record, {"iid/depth": last_value(record, "iid/depth") + 1})
        if record.arm == "good"
        else record
        for record in trial_records
    ]


def build_report(params_of_arm: dict[str, dict[str, float]], objective: str = "valid/accuracy") -> Report:
    """Return the report of searches that chose these params."""
    plan_with_search = replace(
        make_study_plan(),
        arms=make_arms(WEIGHT, RATE),
        search=make_search_plan(objective),
        answer=AnswerPlan(("iid/depth",), None, 0.05, 3),
        metrics=(METRICS[0], DEPTH),
    )
    records = [
        replace(record, assignment=params_of_arm.get(record.arm, params_of_arm["baseline"]))
        for record in add_layer(make_study_records())
    ]
    return summarise(plan_with_search, records)


def warning_keys(report: Report) -> list[tuple[str, str, str]]:
    return [(warning.code, warning.arm, warning.outcome) for warning in report.warnings]


def make_params(weight: float, rate: float = 1e-3) -> dict[str, float]:
    return {"train.ponder_weight": weight, "train.lr": rate}


def test_cost_at_different_searched_params_is_a_warning() -> None:
    report = build_report({"baseline": make_params(0.01), "good": make_params(0.001, 1.1e-3)})
    assert warning_keys(report) == [("chosen-differently", "good", "iid/depth")]
    text = "good against baseline in iid/depth: train.ponder_weight 0.001 against 0.01"
    assert any(text in warning_text for warning_text in warning_texts(report))


@pytest.mark.parametrize(
    ("good_params", "objective"),
    [(make_params(0.01, 1.5e-3), "valid/accuracy"), (make_params(0.001), "valid/depth")],
    ids=["next to it in its range", "the search was for it"],
)
def test_similar_params_or_a_searched_cost_give_no_warning(
    good_params: dict[str, float], objective: str
) -> None:
    params_of_arm = {"baseline": make_params(0.01), "good": good_params}
    assert warning_keys(build_report(params_of_arm, objective)) == []


@pytest.mark.parametrize(
    ("paths", "num_warnings"),
    [(("model.gate", "model.width"), 1), (("optimizer.name", "optimizer.momentum"), 0)],
)
def test_arm_with_several_changed_fields_causes_a_warning(paths: tuple[str, ...], num_warnings: int) -> None:
    changes = tuple(Change(path, 1, 2) for path in paths)
    plan_with_changes = make_study_plan(
        arms=tuple(
            replace(arm, changes=changes if arm.name == "good" else ()) for arm in make_study_plan().arms
        )
    )
    warnings = summarise(plan_with_changes, make_study_records()).warnings
    field_warnings = [warning for warning in warnings if warning.code == "several-fields"]
    assert [warning.arm for warning in field_warnings] == ["good"] * num_warnings
    assert all(path in warning.text for warning in field_warnings for path in paths)


def make_search_records(arm: str, outcomes: tuple[OutcomeKind, ...]) -> list[Record]:
    return [
        replace(
            make_study_records()[0],
            trial_id=f"s-{arm}-0-{number}",
            arm=arm,
            phase="search",
            number=number,
            rank=None,
            outcome=outcome,
        )
        for number, outcome in enumerate(outcomes)
    ]


def test_search_with_one_finished_trial_is_a_warning() -> None:
    finished, crashed = OutcomeKind.FINISHED, OutcomeKind.CRASHED
    trials = tuple(
        PlannedTrial(f"s-{arm}-0-{number}", arm, "search", number, number)
        for arm in EFFECTS
        for number in (0, 1)
    )
    plan_with_search = make_study_plan(arms=make_arms(RATE), search=make_search_plan(), trials=trials)
    search_records = [
        record
        for arm in EFFECTS
        for record in make_search_records(arm, (finished, crashed if arm == "bad" else finished))
    ]
    report = summarise(plan_with_search, [*make_study_records(), *search_records])
    assert warning_keys(report) == [("one-finished-trial", "bad", "")]


@pytest.mark.parametrize(("floor", "is_warned"), [(-1.0, False), (2.0, True)])
def test_arm_at_the_floor_is_named(floor: float, is_warned: bool) -> None:
    """The floor is below all values, or above them; the best possible value lies above both."""
    plan, records = make_study_plan(), make_study_records()
    report = summarise(plan, records)
    metric = report.verdicts[0].metric
    quantity = replace(report.quantity(metric), better="max", low=None, high=9.0)
    quantities = tuple(
        quantity if other_quantity.name == quantity.name else other_quantity
        for other_quantity in report.quantities
    )
    changed = replace(report, floors={metric: floor}, quantities=quantities)
    warned_arms = {
        warning.arm for warning in answer_warnings(plan, changed, records) if warning.code == "at-floor"
    }
    assert warned_arms == (set(EFFECTS) if is_warned else set())
