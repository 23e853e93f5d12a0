"""The split of a metric is declared, or is the text before the first slash of its name."""

import pytest

from orchestrator.plan.answer import metric_splits
from orchestrator.plan.types import AnswerPlan, ConfirmPlan, SearchPlan
from orchestrator.spec.metric_splits import MetricSplits, outcome_split
from orchestrator.spec.section import Objective
from trainables.metrics import Metric, look_up, metric_name, split_and_quantity


@pytest.mark.parametrize(
    ("name", "split", "quantity"),
    [
        ("valid/macro avg/f1-score", "valid", "macro avg/f1-score"),
        ("mAP@50", "", "mAP@50"),
        ("/loss", "", "loss"),
    ],
)
def test_name_is_split_at_its_first_slash(name: str, split: str, quantity: str) -> None:
    assert split_and_quantity(name) == (split, quantity)
    if not name.startswith("/"):
        assert metric_name(split, quantity) == name


def test_answer_declares_the_split_of_outcomes_without_a_split() -> None:
    assert outcome_split("test_accuracy", "far", ("near", "far")) == "far"
    assert outcome_split("near/accuracy", "far", ("near", "far")) == "near"


def test_splits_of_a_plan() -> None:
    objectives = (
        Objective(metric="eval_loss", goal="min"),
        Objective(metric="loss/total", goal="min", split="dev"),
    )
    splits = metric_splits(
        SearchPlan(3, {"name": "random"}, None, objectives, 0),
        ConfirmPlan(1, (1, 2), ("test", "val")),
        AnswerPlan(("test_accuracy",), None, 0.05, 1, split="test"),
    )
    assert {name: (splits.split(name), splits.quantity(name)) for name in splits.declared} == {
        "test_accuracy": ("test", "test_accuracy"),
        "eval_loss": ("valid", "eval_loss"),
        "loss/total": ("dev", "loss/total"),
    }
    assert splits.is_selection("eval_loss")
    assert splits.is_selection("loss/total")
    assert splits.is_selection("eval/loss")
    assert not splits.is_selection("val/loss"), "declared as a test split"
    assert not splits.is_selection("eval_accuracy"), "its split is not declared"
    assert not splits.is_selection("train/loss")
    tested = (
        "test/loss",
        "val/loss",
        "test_accuracy",
        "test_loss",
        "eval_loss",
        "testing/loss",
        "train/loss",
    )
    assert [name for name in tested if splits.is_test(name)] == [*tested[:4]]
    declared = MetricSplits({"test_loss": "valid"}, ("test",))
    assert not declared.is_test("test_loss")
    assert splits.name("test", "test_accuracy") == "test_accuracy"
    assert splits.name("test", "accuracy") == "test/accuracy"


def test_declarations_are_found_by_quantity_and_by_whole_name() -> None:
    declarations = [Metric("accuracy", "max"), Metric("macro avg/f1", "max"), Metric("flops", split="train")]
    assert look_up(declarations, "valid/accuracy").better == "max"
    assert look_up(declarations, "accuracy").better == "max"
    assert look_up(declarations, "valid/macro avg/f1").better == "max"
    assert look_up(declarations, "macro avg/f1").better == "max"
    assert look_up(declarations, "train/flops").split == "train"
    assert look_up(declarations, "valid/flops") == Metric("flops")
    assert look_up(declarations, "eval_loss") == Metric("eval_loss")
