"""What is refused beyond arms and spaces, where the golden specs depend on what is installed."""

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.planner import plan
from tests.orchestrator.plan.small import SEARCH, spec

TWO = [{"metric": "valid/accuracy", "goal": "max"}, {"metric": "valid/depth", "goal": "min"}]


@pytest.mark.parametrize("name", ["cmaes", "CmaEsSampler"])
def test_a_sampler_for_one_objective(name: str) -> None:
    search = {**SEARCH, "sampler": {"name": name}, "stopper": None, "objectives": TWO}
    with pytest.raises(PlanError, match=f"{name} searches for one objective, got 2: choose nsga2 or tpe"):
        plan(spec(search=search))


def test_two_objectives_are_planned() -> None:
    found = plan(spec(search={**SEARCH, "sampler": {"name": "nsga2"}, "stopper": None, "objectives": TWO}))
    assert found.search is not None
    assert [each.metric for each in found.search.objectives] == ["valid/accuracy", "valid/depth"]


@pytest.mark.parametrize("name", ["median", "percentile", "threshold", "hyperband", "asha"])
def test_a_stopper_that_comes_too_late(name: str) -> None:
    soon = {"n_startup_trials": 1}
    needed = {"percentile": {"percentile": 25.0, **soon}, "threshold": {"upper": 1.0}, "median": soon}
    stopper = {"name": name, "grace_steps": 100, **needed.get(name, {})}
    with pytest.raises(PlanError, match=r"can never stop a trial of baseline: it waits for step 100"):
        plan(spec(search={**SEARCH, "stopper": stopper}))
    assert plan(spec(search={**SEARCH, "stopper": {**stopper, "grace_steps": 99}})).search is not None


def test_every_metric_a_trial_reports_can_be_an_objective() -> None:
    for metric in ("valid/loss", "valid/depth_p90", "train/loss", "train/grad_norm"):
        assert plan(spec(search={**SEARCH, "objectives": [{"metric": metric, "goal": "min"}]})).search
