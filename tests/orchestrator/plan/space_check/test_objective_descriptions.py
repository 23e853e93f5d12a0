"""A plan describes its objectives."""

from dataclasses import replace

from orchestrator.plan.space_check.objective_descriptions import objective_lines, reversed_goal_warnings
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Objective
from tests.support.specs.plans import make_plan
from trainables.metrics import Metric


def make_objectives_plan(*objectives: Objective, metrics: tuple[Metric, ...] = ()) -> Plan:
    return replace(make_plan(1, objectives=objectives), metrics=metrics)


def test_goal_that_contradicts_the_metric_name_causes_a_warning() -> None:
    reversed_objective = Objective(metric="valid/accuracy", goal="min")
    normal_objective = Objective(metric="eval_loss", goal="min")
    (warning,) = reversed_goal_warnings(make_objectives_plan(normal_objective, reversed_objective))
    assert warning.startswith("Warning: the goal of valid/accuracy is min")
    assert not list(
        reversed_goal_warnings(make_objectives_plan(reversed_objective, metrics=(Metric("accuracy", "min"),)))
    )


def test_objectives_are_described_with_split_and_scope() -> None:
    usual = Objective(metric="val/loss", goal="min")
    best = Objective(metric="eval_accuracy", goal="max", scope="best")
    mean = Objective(metric="acc", goal="max", split="dev", scope="mean-of-last-3")
    sweep_plan = make_objectives_plan(usual, best, mean)
    lines = list(objective_lines(sweep_plan))
    assert lines == [
        "searches for val/loss (min) on val data: the last report of each trial counts",
        "searches for eval_accuracy (max) on valid data: the best report of each trial counts",
        "searches for acc (max) on dev data: the mean of the last 3 reports of each trial counts",
    ]
    assert list(objective_lines(sweep_plan, unusual=True)) == lines[1:]
