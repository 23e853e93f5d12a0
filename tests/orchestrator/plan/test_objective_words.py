"""What a plan says of its objectives."""

from dataclasses import replace

import pytest

from orchestrator.plan.objective_words import objective_lines, reversed_goals, usual_goal
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Objective
from tests.support.plans import make_plan
from trainables.metrics import Metric


@pytest.mark.parametrize(
    "name",
    [
        "valid/accuracy",
        "val_acc",
        "valid/mAP@50",
        "hits@10",
        "valid/macro avg/f1-score",
        "MulticlassF1Score",
        "eval/R2",
        "valid/both.realistic.hits_at_10",
        "AUROC",
        "valid/BLEU-4",
        "top1Accuracy",
    ],
)
def test_names_of_what_should_be_large(name: str) -> None:
    assert usual_goal(name) == "max"


@pytest.mark.parametrize(
    "name", ["eval_loss", "valid/MSE", "perplexity", "valid/word error", "WER", "valid/crossEntropyLoss"]
)
def test_names_of_what_should_be_small(name: str) -> None:
    assert usual_goal(name) == "min"


@pytest.mark.parametrize(
    "name",
    [
        "valid/score",
        "loss/total",
        "valid/mapping",
        "neg_mean_squared_error",
        "accuracy_loss",
        "valid/glossary",
        "valid/depth",
        "huber[delta=1.3]",
        "точность",
    ],
)
def test_names_that_say_nothing(name: str) -> None:
    assert usual_goal(name) is None


def plan(*objectives: Objective, metrics: tuple[Metric, ...] = ()) -> Plan:
    return replace(make_plan(1, objectives=objectives), metrics=metrics)


def test_a_goal_against_the_name_is_warned_of_unless_the_metric_is_declared() -> None:
    reversed_one = Objective(metric="valid/accuracy", goal="min")
    fine = Objective(metric="eval_loss", goal="min")
    (warning,) = reversed_goals(plan(fine, reversed_one))
    assert warning.startswith("Look twice: the goal of valid/accuracy is min")
    assert not list(reversed_goals(plan(reversed_one, metrics=(Metric("accuracy", "min"),))))


def test_objectives_are_described_with_split_and_scope() -> None:
    usual = Objective(metric="val/loss", goal="min")
    best = Objective(metric="eval_accuracy", goal="max", scope="best")
    mean = Objective(metric="acc", goal="max", split="dev", scope="mean-of-last-3")
    made = plan(usual, best, mean)
    lines = list(objective_lines(made))
    assert lines == [
        "searches for val/loss (min) on val data: the last report of each trial counts",
        "searches for eval_accuracy (max) on valid data: the best report of each trial counts",
        "searches for acc (max) on dev data: the mean of the last 3 reports of each trial counts",
    ]
    assert list(objective_lines(made, unusual=True)) == lines[1:]
