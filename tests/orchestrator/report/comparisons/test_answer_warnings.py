"""Warnings before the answer: different search choices, several changed fields, one finished trial."""

import json
from dataclasses import replace

import pytest

from orchestrator.plan.types import AnswerPlan, Arm, Change, SearchPlan
from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.comparisons.answer_warnings import answer_warnings
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.types import Report
from orchestrator.report.writers.json_file import as_json
from orchestrator.spec.section import Objective
from orchestrator.trials import OutcomeKind, PlannedTrial, Record
from search_spaces.dimensions import Choice, Dimension, Float, Space
from tests.orchestrator.report.comparisons.test_answers import (
    EFFECTS,
    METRICS,
    SEEDS,
    make_study_plan,
    make_study_records,
)
from tests.orchestrator.report.comparisons.test_untested import last_value, with_metrics

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


def build_report(
    params_of_arm: dict[str, list[dict[str, float]]],
    objective: str = "valid/accuracy",
    *dimensions: Dimension,
) -> Report:
    """Return the report of searches that chose these params, one per repeat."""
    repeats = len(params_of_arm["baseline"])
    plan_with_search = replace(
        make_study_plan(),
        arms=make_arms(*(dimensions or (WEIGHT, RATE))),
        search=make_search_plan(objective, repeats),
        answer=AnswerPlan(("iid/depth",), None, 0.05, 3),
        metrics=(METRICS[0], DEPTH),
    )

    def set_chosen_params(record: Record) -> Record:
        repeat = record.number * repeats // len(SEEDS)
        return replace(
            record, repeat=repeat, assignment=params_of_arm.get(record.arm, params_of_arm["baseline"])[repeat]
        )

    return summarise(
        plan_with_search, [set_chosen_params(record) for record in add_layer(make_study_records())]
    )


def warning_keys(report: Report) -> list[tuple[str, str, str]]:
    return [(warning.code, warning.arm, warning.outcome) for warning in report.warnings]


def make_params(weight: float, rate: float = 1e-3) -> dict[str, float]:
    return {"train.ponder_weight": weight, "train.lr": rate}


def test_cost_at_different_searched_params_is_a_warning() -> None:
    report = build_report({"baseline": [make_params(0.01)], "good": [make_params(0.001, 1.1e-3)]})
    assert warning_keys(report) == [("chosen-differently", "good", "iid/depth")]
    text = "good against baseline in iid/depth: train.ponder_weight 0.001 against 0.01"
    assert report.warnings[0].text == text
    assert json.loads(as_json(report))["warnings"][0]["code"] == "chosen-differently"
    assert any(text in warning_text for warning_text in warning_texts(report))


@pytest.mark.parametrize(
    ("good_params", "objective"),
    [
        (make_params(0.01), "valid/accuracy"),
        (make_params(0.01, 1.5e-3), "valid/accuracy"),
        (make_params(0.001), "valid/depth"),
    ],
    ids=["the same", "next to it in its range", "the search was for it"],
)
def test_similar_params_or_a_searched_cost_give_no_warning(
    good_params: dict[str, float], objective: str
) -> None:
    assert (
        warning_keys(build_report({"baseline": [make_params(0.01)], "good": [good_params]}, objective)) == []
    )


def test_overlapping_params_of_repeats_give_no_warning() -> None:
    low_params, high_params = make_params(0.001, 1e-4), make_params(0.01, 1e-2)
    report = build_report({"baseline": [low_params] * 4, "good": [high_params] * 4})
    assert warning_keys(report) == [("chosen-differently", "good", "iid/depth")]
    assert (
        warning_keys(
            build_report(
                {"baseline": [low_params] * 4, "good": [low_params, high_params, high_params, high_params]}
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (("model.gate", "model.width"), "good changes model.gate, model.width"),
        (("model.gate",), None),
        (("optimizer.name", "optimizer.momentum"), None),
    ],
)
def test_arm_with_several_changed_fields_is_a_warning(paths: tuple[str, ...], expected: str | None) -> None:
    changes = tuple(Change(path, 1, 2) for path in paths)
    plan_with_changes = make_study_plan(
        arms=tuple(
            replace(arm, changes=changes if arm.name == "good" else ()) for arm in make_study_plan().arms
        )
    )
    warnings = summarise(plan_with_changes, make_study_records()).warnings
    assert [warning.text for warning in warnings if warning.code == "several-fields"] == (
        [expected] if expected else []
    )


def make_search_records(arm: str, repeat: int, outcomes: tuple[OutcomeKind, ...]) -> list[Record]:
    return [
        replace(
            make_study_records()[0],
            trial_id=f"s-{arm}-{repeat}-{number}",
            arm=arm,
            phase="search",
            number=number,
            rank=None,
            repeat=repeat,
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
        for record in make_search_records(arm, 0, (finished, crashed if arm == "bad" else finished))
    ]
    report = summarise(plan_with_search, [*make_study_records(), *search_records])
    assert warning_keys(report) == [("one-finished-trial", "bad", "")]
    repeated_plan = replace(
        plan_with_search,
        search=make_search_plan(repeats=2),
        trials=(*trials, *(replace(trial, repeat=1) for trial in trials)),
    )
    other_records = [replace(record, repeat=1) for record in search_records]
    texts = [
        warning.text
        for warning in answer_warnings(repeated_plan, report, [*search_records, *other_records])
        if warning.code == "one-finished-trial"
    ]
    assert texts == ["bad, repeat 0 (1 of 2 trials)", "bad, repeat 1 (1 of 2 trials)"]
    unfinished_report = summarise(
        plan_with_search,
        [*make_study_records(), *search_records[:-1], *make_search_records("bad", 0, (finished,))],
    )
    assert ("one-finished-trial", "same", "") not in warning_keys(unfinished_report), (
        "the second trial may still finish"
    )


@pytest.mark.parametrize(("floor", "is_warned"), [(-1.0, False), (2.0, True)])
def test_arm_at_the_floor_is_named(floor: float, is_warned: bool) -> None:
    """The floor is below all values, or above them; the best possible value lies above both."""
    plan, records = make_study_plan(), make_study_records()
    report = summarise(plan, records)
    metric = report.verdicts[0].metric
    quantity = replace(report.quantity(metric), better="max", low=None, high=9.0)
    quantities = tuple(quantity if other.name == quantity.name else other for other in report.quantities)
    changed = replace(report, floors={metric: floor}, quantities=quantities)
    warned_arms = {
        warning.arm for warning in answer_warnings(plan, changed, records) if warning.code == "at-floor"
    }
    compared_arms = {
        arm
        for verdict in report.verdicts
        if verdict.metric == metric
        for arm in (verdict.arm, verdict.reference)
    }
    assert warned_arms == (compared_arms if is_warned else set())
