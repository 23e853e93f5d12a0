"""Which outcome is primary where a spec does not say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InputError, PlanError, SpecError
from orchestrator.plan.answer import answer_plan, default_outcome, with_spread
from orchestrator.plan.power import power
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.types import AnswerPlan, ConfirmPlan, SearchPlan
from orchestrator.spec.load import read_spec, to_yaml
from orchestrator.spec.section import Objective
from orchestrator.spec.types import Answer
from tests.orchestrator.plan import small
from tests.support.specs.planned import plan
from trainables.metrics import Metric, parse_metrics
from trainables.training.measured import declared_metrics

CONFIRM = ConfirmPlan(1, (1, 2, 3), ("first", "second"))
SEARCH = SearchPlan(4, {}, None, (Objective(metric="valid/error", goal="min"),), 0)


@pytest.mark.parametrize(
    ("task", "head", "quantity"),
    [
        ("listops", "classify", "accuracy"),
        ("logical_inference", "pair", "accuracy"),
        ("flipflop", "positions", "accuracy_last"),
        ("algorithms", "positions", "accuracy_whole"),
        ("cfq", "sequence", "exact_match"),
        ("wmt14", "sequence", "bleu"),
    ],
)
def test_every_task_is_judged_by_its_own_quantity(task: str, head: str, quantity: str) -> None:
    metrics = declared_metrics([task], [head])  # type: ignore[list-item]
    assert default_outcome(CONFIRM, None, metrics) == f"first/{quantity}"
    assert len({(metric.split, metric.name) for metric in metrics}) == len(metrics)
    assert (
        "figure" in next(metric for metric in metrics if metric.name == quantity).shown
        or quantity == "exact_match"
    )


def test_own_trainables_are_judged_by_what_is_searched_for_or_declared_first() -> None:
    two = parse_metrics({"accuracy": {}, "error": {}})
    assert default_outcome(CONFIRM, SEARCH, two) == "first/error"
    assert default_outcome(CONFIRM, None, two) == "first/accuracy"
    assert default_outcome(CONFIRM, None, ()) is None
    marked = (Metric("a"), Metric("b", shown=("headline",)))
    assert default_outcome(CONFIRM, SEARCH, marked) == "first/b"
    speed = (Metric("tokens_per_s", shown=("headline",), split="train"),)
    assert default_outcome(CONFIRM, SEARCH, speed) == "train/tokens_per_s"


NO_HALT = {**small.BASELINE, "model": {**small.BASELINE["model"], "halt": None}}
SHALLOW = {"shallow": {"why": "half the depth", "set": {"model.max_layers": 3}}}
HALTING = {"halting": {"why": "halts", "set": {"model.halt": {"unit": "token"}}}}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            {"metric": "near-iid/depth"},
            r"answer\.metric: must differ between seeds, got near-iid/depth, which is always 6 in baseline",
        ),
        (
            {"metric": "near-iid/flops"},
            r"answer\.metric: must differ between seeds, got near-iid/flops, which the settings decide",
        ),
        ({"also": ["near-iid/ponder"]}, r"answer\.also\[0\]: must differ between seeds, got near-iid/ponder"),
    ],
)
def test_an_outcome_that_settings_decide_in_every_arm_is_refused(answer: Any, expected: str) -> None:
    with pytest.raises(PlanError, match=expected):
        plan(small.spec(baseline=NO_HALT, arms=SHALLOW, answer=answer))
    assert plan(small.spec(baseline=NO_HALT, arms=SHALLOW | HALTING, answer=answer)).answer
    assert plan(small.spec(baseline=NO_HALT, answer=answer)).answer, "as `haltsweep best` writes it"


SIZES = {"model.feedforward_width": {"int": [4, 12]}}


def test_flops_that_a_search_sizes_may_be_one_of_two_objectives() -> None:
    search = {**small.SEARCH, "spaces": [], "stopper": None}
    cost = {"metric": "valid/flops", "goal": "min"}
    two = [{"metric": "valid/accuracy", "goal": "max"}, cost]
    assert plan(small.spec(baseline=NO_HALT, search={**search, "also": SIZES, "objectives": two})).search
    for asked in (
        {"also": SIZES, "objectives": [cost]},
        {"also": {"train.lr": {"float": [1e-4, 1e-3]}}, "objectives": two},
    ):
        with pytest.raises(
            PlanError, match=r"objectives\[.\]\.metric: must vary, got valid/flops, which the"
        ):
            plan(small.spec(baseline=NO_HALT, search={**search, **asked}))


def test_a_spread_beyond_the_range_is_refused() -> None:
    with pytest.raises(
        PlanError, match=r"answer\.spread: must be smaller than 1, the whole range of near-iid"
    ):
        plan(small.spec(answer={"metric": "near-iid/accuracy", "spread": 5.0}))


@pytest.mark.parametrize("key", ["margin", "spread"])
@pytest.mark.parametrize("given", [1.0, 2.0])
def test_so_is_one_beyond_the_range_of_the_outcome_that_is_not_named(key: str, given: float) -> None:
    with pytest.raises(
        PlanError, match=rf"answer\.{key}: must be smaller than 1, the whole range of near-iid/accuracy"
    ):
        plan(small.spec(answer={key: given}))
    assert plan(small.spec(answer={key: 0.01})).answer


def test_without_splits_nothing_that_a_search_chose_by_is_primary() -> None:
    nothing = replace(CONFIRM, splits=())
    metrics = declared_metrics(["listops"], ["classify"])
    assert default_outcome(nothing, None, metrics) == "valid/accuracy"
    assert default_outcome(nothing, SEARCH, metrics) is None
    assert answer_plan(None, nothing, SEARCH, metrics, 3).family == 3


def test_every_primary_outcome_counts_in_the_family() -> None:
    asked = Answer(metric="second/accuracy", also=("first/depth",), margin=0.01, level=0.1)
    found = answer_plan(asked, CONFIRM, None, (), 5)
    assert found.outcomes == ("second/accuracy", "first/depth")
    assert (found.margin, found.level, found.family) == (0.01, 0.1, 10)


def test_the_spread_of_another_sweep_is_written_into_the_spec(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(
        "name: study\nquestion: Is it planned?\n"
        "baseline: {task: {name: listops}, model: {name: universal}, train: {steps: 9}}\n"
        "confirm: {seeds: [1, 2, 3], splits: [near-iid]}\n"
        "answer: {metric: near-iid/accuracy, spread: {from: earlier}}\n"
    )
    asked: list[tuple[str, str | None]] = []

    def found(name: str, metric: str | None) -> float:
        asked.append((name, metric))
        return 0.0125

    known = with_spread(read_spec(file), found)
    assert asked == [("earlier", "near-iid/accuracy")]
    assert known.spec.answer is not None
    assert known.spec.answer.spread == {"from": "earlier", "found": 0.0125}
    file.write_text(to_yaml(known.spec))
    again = read_spec(file)
    assert again.spec == known.spec
    assert with_spread(again, found) is again, "what was found is not looked up again"
    answer = AnswerPlan(("near-iid/accuracy",), None, 0.05, 4)
    shown = power(CONFIRM, answer, known.spec.answer.spread)
    assert (shown.spread, shown.spread_source) == (0.0125, "baseline of earlier")


def test_a_sweep_that_shows_no_spread_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(
        "name: study\nquestion: Is it planned?\n"
        "baseline: {task: {name: listops}, model: {name: universal}, train: {steps: 9}}\n"
        "confirm: {seeds: [1, 2, 3], splits: [near-iid]}\n"
        "answer:\n  spread: {from: gone}\n"
    )

    def found(name: str, metric: str | None) -> float:
        raise InputError(f"there is no sweep {name}")

    with pytest.raises(SpecError, match=r"study\.yaml:6: answer\.spread: there is no sweep gone"):
        with_spread(read_spec(file), found)


def test_moderated_variances_are_asked_for_in_the_answer_and_kept_in_the_plan() -> None:
    asked = AnswerPlan(("first/a",), None, 0.05, 3, moderated=True)
    assert answer_plan(Answer(metric="first/a", variance="moderated"), CONFIRM, None, (), 3) == asked
    made = plan(small.spec(arms=HALTING | SHALLOW))
    kept = replace(made, answer=replace(made.answer, moderated=True))
    assert from_json(to_json(kept)) == kept
    assert "moderated" not in to_json(made), "plans without it keep their bytes"


def test_the_plan_says_whether_moderated_variances_find_more() -> None:
    def words(seeds: int, family: int) -> str:
        answer = AnswerPlan(("first/a",), None, 0.05, family, moderated=True)
        return power(ConfirmPlan(1, tuple(range(seeds)), ()), answer).sentence

    assert "find more" in words(5, 3)
    assert "changes nothing" in words(4, 3)
    assert "changes nothing" in words(5, 2)
