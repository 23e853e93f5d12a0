"""The primary outcome of a sweep, also where the spec names none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InputError
from orchestrator.plan.answer import answer_plan, better_direction, default_outcome, with_spread
from orchestrator.plan.power import power
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.types import AnswerPlan, ConfirmPlan, SearchPlan
from orchestrator.spec.load import read_spec, to_yaml
from orchestrator.spec.section import Objective
from orchestrator.spec.types import Answer, CustomSpec
from tests.orchestrator.plan import small_specs
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults
from trainables.metrics import Metric, parse_metrics
from trainables.training.metric_catalog import declared_metrics

CONFIRM = ConfirmPlan(1, (1, 2, 3), ("first", "second"))
SEARCH = SearchPlan(4, {}, None, (Objective(metric="valid/error", goal="min"),), 0)


@pytest.mark.parametrize(
    ("task", "head", "quantity"),
    [
        ("logical_inference", "pair", "accuracy"),
        ("flipflop", "positions", "accuracy_last"),
        ("cfq", "sequence", "exact_match"),
        ("wmt14", "sequence", "bleu"),
    ],
)
def test_every_task_has_its_default_metric(task: str, head: str, quantity: str) -> None:
    metrics = declared_metrics([task], [head])  # type: ignore[list-item]
    assert default_outcome(CONFIRM, None, metrics) == f"first/{quantity}"
    assert len({(metric.split, metric.name) for metric in metrics}) == len(metrics)


def test_custom_trainables_use_the_objective_or_the_first_declared_metric() -> None:
    metrics = parse_metrics({"accuracy": {}, "error": {}})
    assert default_outcome(CONFIRM, SEARCH, metrics) == "first/error"
    assert default_outcome(CONFIRM, None, metrics) == "first/accuracy"
    assert default_outcome(CONFIRM, None, ()) is None
    headline_metrics = (Metric("a"), Metric("b", shown=("headline",)))
    assert default_outcome(CONFIRM, SEARCH, headline_metrics) == "first/b"
    speed = (Metric("tokens_per_s", shown=("headline",), split="train"),)
    assert default_outcome(CONFIRM, SEARCH, speed) == "train/tokens_per_s"


NO_HALT = {**small_specs.BASELINE, "model": {**small_specs.BASELINE["model"], "halt": None}}
SHALLOW_ARM = {"shallow": {"why": "half the depth", "set": {"model.max_layers": 3}}}
HALTING = {"halting": {"why": "halts", "set": {"model.halt": {"unit": "token"}}}}


@pytest.mark.parametrize(
    ("answer", "path"),
    [({"metric": "near-iid/flops"}, "answer.metric"), ({"also": ["near-iid/ponder"]}, "answer.also[0]")],
)
def test_outcome_that_settings_determine_in_every_arm_is_refused(answer: Any, path: str) -> None:
    with expect_faults("metric-does-not-vary", path):
        plan(small_specs.make_spec(baseline=NO_HALT, arms=SHALLOW_ARM, answer=answer))
    assert plan(small_specs.make_spec(baseline=NO_HALT, arms=SHALLOW_ARM | HALTING, answer=answer)).answer
    assert plan(small_specs.make_spec(baseline=NO_HALT, answer=answer)).answer, (
        "`haltsweep best` writes such specs"
    )


SIZES = {"model.feedforward_width": {"int": [4, 12]}}


def test_flops_that_a_search_changes_may_be_one_of_two_objectives() -> None:
    search = {**small_specs.SEARCH, "spaces": [], "stopper": None}
    cost = {"metric": "valid/flops", "goal": "min"}
    objectives = [{"metric": "valid/accuracy", "goal": "max"}, cost]
    assert plan(
        small_specs.make_spec(baseline=NO_HALT, search={**search, "also": SIZES, "objectives": objectives})
    ).search
    for position, search_parts in enumerate(
        (
            {"also": SIZES, "objectives": [cost]},
            {"also": {"train.lr": {"float": [1e-4, 1e-3]}}, "objectives": objectives},
        )
    ):
        with expect_faults("metric-does-not-vary", f"search.objectives[{position}].metric"):
            plan(small_specs.make_spec(baseline=NO_HALT, search={**search, **search_parts}))


def test_spread_beyond_the_range_of_the_outcome_is_refused() -> None:
    with expect_faults("invalid-value", "answer.spread"):
        plan(small_specs.make_spec(answer={"spread": 1.0}))


def test_search_objective_on_validation_data_is_not_primary() -> None:
    without_splits = replace(CONFIRM, splits=())
    metrics = declared_metrics(["listops"], ["classify"])
    assert default_outcome(without_splits, None, metrics) == "valid/accuracy"
    assert default_outcome(without_splits, SEARCH, metrics) is None
    assert answer_plan(None, without_splits, SEARCH, metrics, 3).family == 3


def test_every_primary_outcome_counts_in_the_family() -> None:
    answer = Answer(metric="second/accuracy", also=("first/depth",), margin=0.01, level=0.1)
    answer_plan_ = answer_plan(answer, CONFIRM, None, (), 5)
    assert answer_plan_.outcomes == ("second/accuracy", "first/depth")
    assert (answer_plan_.margin, answer_plan_.level, answer_plan_.family) == (0.01, 0.1, 10)


STUDY = """
name: study
question: Is it planned?
baseline: {task: {name: listops}, model: {name: universal}, train: {steps: 9}}
confirm: {seeds: [1, 2, 3], splits: [near-iid]}
"""


def test_spread_of_another_sweep_is_written_into_the_spec(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(f"{STUDY}answer: {{metric: near-iid/accuracy, spread: {{from: earlier}}}}\n")
    requests: list[tuple[str, str | None]] = []

    def find_spread(name: str, metric: str | None) -> float:
        requests.append((name, metric))
        return 0.0125

    completed = with_spread(read_spec(file), find_spread)
    assert requests == [("earlier", "near-iid/accuracy")]
    assert completed.spec.answer.spread == {"from": "earlier", "found": 0.0125}
    file.write_text(to_yaml(completed.spec))
    reread = read_spec(file)
    assert reread.spec == completed.spec
    assert with_spread(reread, find_spread) is reread, "a known spread must not be looked up again"
    answer = AnswerPlan(("near-iid/accuracy",), None, 0.05, 4)
    sweep_power = power(CONFIRM, answer, completed.spec.answer.spread)
    assert (sweep_power.spread, "earlier" in sweep_power.spread_source) == (0.0125, True)


def test_sweep_without_a_spread_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(f"{STUDY}answer:\n  spread: {{from: gone}}\n")

    def find_spread(name: str, metric: str | None) -> float:
        raise InputError(f"there is no sweep {name}")

    with expect_faults("unknown-name", "answer.spread"):
        with_spread(read_spec(file), find_spread)


def test_moderated_variances_are_part_of_the_answer_and_the_plan() -> None:
    expected = AnswerPlan(("first/a",), None, 0.05, 3, moderated=True)
    assert answer_plan(Answer(metric="first/a", variance="moderated"), CONFIRM, None, (), 3) == expected
    sweep_plan = plan(small_specs.make_spec(arms=HALTING | SHALLOW_ARM))
    moderated_plan = replace(sweep_plan, answer=replace(sweep_plan.answer, moderated=True))
    assert from_json(to_json(moderated_plan)) == moderated_plan
    assert "moderated" not in to_json(sweep_plan), "the file of a plan without moderation must not change"


def make_custom_spec(answer: dict[str, Any], **parts: Any) -> CustomSpec:
    content = {
        "name": "directed",
        "question": "Is it better?",
        "trainable": "tests.support.training_code.habits:train",
        "baseline": {"lr": 0.1},
        "confirm": {"seeds": 3, "splits": ["test"]},
        "answer": answer,
    }
    return CustomSpec.model_validate({**content, **parts}, context={"own": True})


@pytest.mark.parametrize("goal", ["max", None])
def test_goal_is_the_better_direction_of_an_undeclared_outcome(goal: str | None) -> None:
    planned = plan(make_custom_spec({"metric": "valid/score", "goal": goal, "also": ["valid/loss"]}))
    assert better_direction(Metric("score"), "valid/score", (), planned.answer) == goal
    assert better_direction(Metric("loss"), "valid/loss", (), planned.answer) is None


def test_goal_needs_a_metric_and_the_direction_of_the_search() -> None:
    with expect_faults("conflicting-fields", "answer.goal"):
        plan(make_custom_spec({"goal": "max"}))
    objectives = [{"metric": "valid/score", "goal": "min"}]
    search = {"also": {"lr": {"float": [0.01, 1.0]}}, "trials_per_arm": 4, "objectives": objectives}
    with expect_faults("conflicting-fields", "answer.goal"):
        plan(make_custom_spec({"metric": "test/score", "goal": "max"}, search=search))
