"""Describe the objectives of a plan, and warn about goals that look reversed."""

from collections.abc import Iterator

from orchestrator.plan.answer import metric_splits
from orchestrator.plan.report_counts import num_reports
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Objective
from trainables.metrics import look_up, usual_goal


def objective_words(objective: Objective, split: str, reports: int | None = None) -> str:
    """Return a description of one objective: metric, goal, split and scope.

    Args:
        objective: The objective.
        split: The split that it is measured on.
        reports: Maximum number of reports of a trial; None if it is unknown.
    """
    return f"{objective.metric} ({objective.goal}) on {split} data: {_scope_words(objective, reports)} counts"


def _scope_words(objective: Objective, reports: int | None) -> str:
    if reports == 1:
        return "the only report of each trial"
    if objective.scope == "best":
        return "the best report of each trial"
    if objective.scope == "last":
        return "the last report of each trial"
    num_averaged = objective.mean_of if reports is None else min(objective.mean_of, reports)
    return f"the mean of the last {num_averaged} reports of each trial"


def objective_lines(plan: Plan, *, unusual: bool = False) -> Iterator[str]:
    """Yield a description of every objective.

    Args:
        plan: The plan of a sweep.
        unusual: Whether to leave out objectives whose name begins with the split and whose scope is the last
            report.
    """
    names, reports = metric_splits(plan.search, plan.confirm, plan.answer), num_reports(plan)
    for objective in plan.objectives:
        split = names.split(objective.metric)
        if not unusual or objective.scope != "last" or not objective.metric.startswith(f"{split}/"):
            yield f"searches for {objective_words(objective, split, reports)}"


def reversed_goal_warnings(plan: Plan) -> Iterator[str]:
    """Yield warnings about goals that contradict the name of the metric, for undeclared metrics."""
    for objective in plan.objectives:
        usual = usual_goal(objective.metric)
        if look_up(plan.metrics, objective.metric).better is None and usual not in (None, objective.goal):
            direction = {"max": "larger", "min": "smaller"}
            yield (
                f"Warning: the goal of {objective.metric} is {objective.goal}, and by its name "
                f"{direction[usual]} values are better: write goal: {usual} if that is meant."
            )
