"""A plan warns of goals that contradict a metric, and of patience that never ends a trial."""

import re
from dataclasses import replace

import pytest

from orchestrator.plan.report_counts import idle_patience_warnings
from orchestrator.plan.space_check.objective_descriptions import reversed_goal_warnings
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
    assert re.match("Warning: .*valid/accuracy .*min", warning)
    assert not list(
        reversed_goal_warnings(make_objectives_plan(reversed_objective, metrics=(Metric("accuracy", "min"),)))
    )


@pytest.mark.parametrize(("patience", "num_warnings"), [(None, 0), (1, 0), (2, 1)])
def test_patience_that_needs_more_reports_causes_a_warning(patience: int | None, num_warnings: int) -> None:
    sweep_plan = make_plan(2)
    settings = {"train": {"steps": 40, "report_every": 10, "patience": patience, "halve_after": None}}
    arms = tuple(replace(arm, settings=settings) for arm in sweep_plan.arms)
    warnings = list(idle_patience_warnings(replace(sweep_plan, arms=arms)))
    assert len(warnings) == num_warnings
    assert all(warning.startswith("Warning: train.patience ") for warning in warnings)
