"""The split of a metric: declared, or what stands before the first slash of its name."""

import pytest

from orchestrator.plan.answer import metric_splits
from orchestrator.plan.types import AnswerPlan, ConfirmPlan, SearchPlan
from orchestrator.spec.metric_splits import MetricSplits, declared_split, outcome_split
from orchestrator.spec.section import Objective
from trainables.metrics import Metric, look_up, metric_name, split_and_quantity


@pytest.mark.parametrize(
    ("name", "split", "quantity"),
    [
        ("valid/accuracy", "valid", "accuracy"),
        ("valid/macro avg/f1-score", "valid", "macro avg/f1-score"),
        ("valid/both.realistic.hits_at_10", "valid", "both.realistic.hits_at_10"),
        ("mAP@50", "", "mAP@50"),
        ("/loss", "", "loss"),
    ],
)
def test_a_name_is_split_at_its_first_slash(name: str, split: str, quantity: str) -> None:
    assert split_and_quantity(name) == (split, quantity)
    if not name.startswith("/"):
        assert metric_name(split, quantity) == name


@pytest.mark.parametrize(
    ("metric", "given", "split"),
    [
        ("valid/loss", None, "valid"),
        ("val/loss", None, "val"),
        ("dev/loss", None, "dev"),
        ("train/loss", None, "train"),
        ("eval_loss", None, "valid"),
        ("loss/total", None, "valid"),
        ("near/loss", None, "near"),
        ("eval_loss", "dev", "dev"),
        ("loss/total", "train", "train"),
    ],
)
def test_the_split_of_an_objective(metric: str, given: str | None, split: str) -> None:
    assert declared_split(metric, given, ("near",)) == split


def test_an_answer_declares_the_split_of_outcomes_that_name_none() -> None:
    assert outcome_split("test_accuracy", "far", ("near", "far")) == "far"
    assert outcome_split("near/accuracy", "far", ("near", "far")) == "near"


def test_splits_of_a_plan() -> None:
    objectives = (
        Objective(metric="eval_loss", goal="min"),
        Objective(metric="loss/total", goal="min", split="dev"),
    )
    found = metric_splits(
        SearchPlan(3, {"name": "random"}, None, objectives, 0),
        ConfirmPlan(1, (1, 2), ("test", "val")),
        AnswerPlan(("test_accuracy",), None, 0.05, 1, split="test"),
    )
    assert {name: (found.split(name), found.quantity(name)) for name in found.declared} == {
        "test_accuracy": ("test", "test_accuracy"),
        "eval_loss": ("valid", "eval_loss"),
        "loss/total": ("dev", "loss/total"),
    }
    assert found.is_selection("eval_loss")
    assert found.is_selection("loss/total")
    assert found.is_selection("eval/loss")
    assert not found.is_selection("val/loss"), "declared as a test split"
    assert not found.is_selection("eval_accuracy"), "nothing says what it is measured on"
    assert not found.is_selection("train/loss")
    tested = (
        "test/loss",
        "val/loss",
        "test_accuracy",
        "test_loss",
        "eval_loss",
        "testing/loss",
        "train/loss",
    )
    assert [name for name in tested if found.is_test(name)] == [*tested[:4]]
    declared = MetricSplits({"test_loss": "valid"}, ("test",))
    assert not declared.is_test("test_loss")
    assert found.name("test", "test_accuracy") == "test_accuracy"
    assert found.name("test", "accuracy") == "test/accuracy"


def test_a_metric_that_nothing_declares() -> None:
    assert MetricSplits().split("eval_accuracy") == ""
    assert MetricSplits().quantity("eval_accuracy") == "eval_accuracy"


def test_declarations_are_found_by_quantity_and_by_whole_name() -> None:
    known = [Metric("accuracy", "max"), Metric("macro avg/f1", "max"), Metric("flops", split="train")]
    assert look_up(known, "valid/accuracy").better == "max"
    assert look_up(known, "accuracy").better == "max"
    assert look_up(known, "valid/macro avg/f1").better == "max"
    assert look_up(known, "macro avg/f1").better == "max"
    assert look_up(known, "train/flops").split == "train"
    assert look_up(known, "valid/flops") == Metric("flops")
    assert look_up(known, "eval_loss") == Metric("eval_loss")
