"""What a plan says of its objectives."""

from dataclasses import replace

from orchestrator.plan.space_check.objective_descriptions import objective_lines, reversed_goal_warnings
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Objective
from tests.support.specs.plans import make_plan
from trainables.metrics import Metric


def plan(*objectives: Objective, metrics: tuple[Metric, ...] = ()) -> Plan:
    return replace(make_plan(1, objectives=objectives), metrics=metrics)


def test_a_goal_against_the_name_is_warned_of_unless_the_metric_is_declared() -> None:
    reversed_one = Objective(metric="valid/accuracy", goal="min")
    fine = Objective(metric="eval_loss", goal="min")
    (warning,) = reversed_goal_warnings(plan(fine, reversed_one))
    assert warning.startswith("Warning: the goal of valid/accuracy is min")
    assert not list(reversed_goal_warnings(plan(reversed_one, metrics=(Metric("accuracy", "min"),))))


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
