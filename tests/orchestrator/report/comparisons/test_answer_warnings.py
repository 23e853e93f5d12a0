"""Warnings before the answer: differing choices of searches, several fields at once, one finished trial."""

import json
from dataclasses import replace

import pytest

from orchestrator.plan.types import AnswerPlan, Arm, Change, SearchPlan
from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.types import Report
from orchestrator.report.writers.json_file import as_json
from orchestrator.spec.section import Objective
from orchestrator.trials import OutcomeKind, PlannedTrial, Record
from search_spaces.dimensions import Choice, Dimension, Float, Space
from tests.orchestrator.report.comparisons.test_answers import EFFECTS, METRICS, SEEDS, plan, records
from tests.orchestrator.report.comparisons.test_untested import measuring, value_of

DEPTH = replace(METRICS[1], is_cost=True)
WEIGHT = Dimension("train.ponder_weight", Choice((0.001, 0.01)))
RATE = Dimension("train.lr", Float(1e-4, 1e-2, log=True))


def search(metric: str = "valid/accuracy", repeats: int = 1) -> SearchPlan:
    return SearchPlan(2, {"name": "tpe"}, None, (Objective(metric=metric, goal="max"),), 0, repeats)


def arms(*dimensions: Dimension) -> tuple[Arm, ...]:
    made = (replace(arm, space=Space(dimensions)) for arm in plan().arms)
    return tuple(made)


def deeper(found: list[Record]) -> list[Record]:
    """Records in which one arm runs a layer more in every seed."""
    return [
        measuring(each, {"iid/depth": value_of(each, "iid/depth") + 1}) if each.arm == "good" else each
        for each in found
    ]


def report(
    chosen: dict[str, list[dict[str, float]]], objective: str = "valid/accuracy", *dimensions: Dimension
) -> Report:
    """Report of searches that chose these assignments: one, or one of every repeat."""
    repeats = len(chosen["baseline"])
    planned = replace(
        plan(),
        arms=arms(*(dimensions or (WEIGHT, RATE))),
        search=search(objective, repeats),
        answer=AnswerPlan(("iid/depth",), None, 0.05, 3),
        metrics=(METRICS[0], DEPTH),
    )

    def confirmed(each: Record) -> Record:
        repeat = each.number * repeats // len(SEEDS)
        return replace(each, repeat=repeat, assignment=chosen.get(each.arm, chosen["baseline"])[repeat])

    return summarise(planned, [confirmed(each) for each in deeper(records())])


def found(made: Report) -> list[tuple[str, str, str]]:
    return [(warning.code, warning.arm, warning.outcome) for warning in made.warnings]


def choice(weight: float, rate: float = 1e-3) -> dict[str, float]:
    return {"train.ponder_weight": weight, "train.lr": rate}


def test_a_cost_is_compared_at_settings_that_searches_for_something_else_chose_apart() -> None:
    made = report({"baseline": [choice(0.01)], "good": [choice(0.001, 1.1e-3)]})
    assert found(made) == [("chosen-differently", "good", "iid/depth")]
    text = "good against baseline in iid/depth: train.ponder_weight 0.001 against 0.01"
    assert made.warnings[0].text == text
    assert json.loads(as_json(made))["warnings"][0]["code"] == "chosen-differently"
    assert any(text in warning_text for warning_text in warning_texts(made))


@pytest.mark.parametrize(
    ("good", "objective"),
    [
        (choice(0.01), "valid/accuracy"),
        (choice(0.01, 1.5e-3), "valid/accuracy"),
        (choice(0.001), "valid/depth"),
    ],
    ids=["the same", "next to it in its range", "the search was for it"],
)
def test_choices_that_are_alike_or_meant_give_no_warning(good: dict[str, float], objective: str) -> None:
    assert found(report({"baseline": [choice(0.01)], "good": [good]}, objective)) == []


def test_choices_of_repeats_must_not_overlap() -> None:
    low, high = choice(0.001, 1e-4), choice(0.01, 1e-2)
    apart = report({"baseline": [low] * 4, "good": [high] * 4})
    assert found(apart) == [("chosen-differently", "good", "iid/depth")]
    assert found(report({"baseline": [low] * 4, "good": [low, high, high, high]})) == []


@pytest.mark.parametrize(
    ("paths", "listed"),
    [
        (("model.gate", "model.width"), "good changes model.gate, model.width"),
        (("model.gate",), None),
        (("optimizer.name", "optimizer.momentum"), None),
    ],
)
def test_an_arm_with_several_fields_is_listed(paths: tuple[str, ...], listed: str | None) -> None:
    changes = tuple(Change(path, 1, 2) for path in paths)
    made = plan(
        arms=tuple(replace(arm, changes=changes if arm.name == "good" else ()) for arm in plan().arms)
    )
    warnings = summarise(made, records()).warnings
    assert [warning.text for warning in warnings if warning.code == "several-fields"] == (
        [listed] if listed else []
    )


def searched(arm: str, repeat: int, outcomes: tuple[OutcomeKind, ...]) -> list[Record]:
    return [
        replace(
            records()[0],
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
    done, crashed = OutcomeKind.FINISHED, OutcomeKind.CRASHED
    trials = tuple(
        PlannedTrial(f"s-{arm}-0-{number}", arm, "search", number, number)
        for arm in EFFECTS
        for number in (0, 1)
    )
    made = plan(arms=arms(RATE), search=search(), trials=trials)
    ended = [each for arm in EFFECTS for each in searched(arm, 0, (done, crashed if arm == "bad" else done))]
    report = summarise(made, [*records(), *ended])
    assert found(report) == [("one-finished-trial", "bad", "")]
    running = summarise(made, [*records(), *ended[:-1], *searched("bad", 0, (done,))])
    assert ("one-finished-trial", "same", "") not in found(running), "its second trial may still finish"
