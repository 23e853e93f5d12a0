"""Checks of a plan that depend on installed packages, unlike the golden specs."""

from collections import Counter
from typing import Any

import pytest

from orchestrator.errors import PlanError
from tests.orchestrator.plan.small_specs import SEARCH, make_spec
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults

TWO = [{"metric": "valid/accuracy", "goal": "max"}, {"metric": "valid/depth", "goal": "min"}]


@pytest.mark.parametrize("name", ["cmaes", "CmaEsSampler"])
def test_sampler_for_one_objective_is_refused_with_two(name: str) -> None:
    search = {**SEARCH, "sampler": {"name": name}, "stopper": None, "objectives": TWO}
    with expect_faults("invalid-value", "search.sampler"):
        plan(make_spec(search=search))


def test_two_objectives_are_planned() -> None:
    sweep_plan = plan(
        make_spec(search={**SEARCH, "sampler": {"name": "nsga2"}, "stopper": None, "objectives": TWO})
    )
    assert sweep_plan.search is not None
    assert [objective.metric for objective in sweep_plan.search.objectives] == [
        "valid/accuracy",
        "valid/depth",
    ]


@pytest.mark.parametrize("bounds", [{"upper": 1.0}, {"lower": -1, "upper": 2}])
def test_stopper_with_unreachable_bounds_is_refused(bounds: Any) -> None:
    stopper = {"name": "threshold", **bounds}
    with expect_faults("conflicting-fields", "search.stopper"):
        plan(make_spec(search={**SEARCH, "stopper": stopper}))


@pytest.mark.parametrize("name", ["median", "percentile", "threshold", "hyperband", "asha"])
def test_stopper_that_waits_too_long_is_refused(name: str) -> None:
    startup = {"n_startup_trials": 1}
    needed = {"percentile": {"percentile": 25.0, **startup}, "threshold": {"upper": 0.9}, "median": startup}
    stopper = {"name": name, "grace_steps": 100, **needed.get(name, {})}
    with expect_faults("conflicting-fields", "search.stopper"):
        plan(make_spec(search={**SEARCH, "stopper": stopper}))
    assert plan(make_spec(search={**SEARCH, "stopper": {**stopper, "grace_steps": 99}})).search is not None


def test_every_reported_metric_can_be_an_objective() -> None:
    for metric in ("valid/loss", "valid/depth_p90", "train/loss", "train/grad_norm"):
        assert plan(make_spec(search={**SEARCH, "objectives": [{"metric": metric, "goal": "min"}]})).search


LATTICE = {
    "spaces": [],
    "stopper": None,
    "sampler": "grid",
    "also": {"model.max_layers": {"int": [2, 4]}, "train.lr": {"choice": [0.001, 0.01]}},
}


def test_grid_search_has_one_trial_for_each_combination() -> None:
    arms = {"fixed": {"why": "one depth", "set": {"model.max_layers": 3}, "drop": ["model.max_layers"]}}
    sweep_plan = plan(make_spec(arms=arms, search={**SEARCH, **LATTICE, "trials_per_arm": 50}))
    counts = Counter(trial.arm for trial in sweep_plan.trials if trial.phase == "search")
    assert counts == {"baseline": 6, "fixed": 2}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"trials_per_arm": 5}, "search.trials_per_arm"),
        ({"also": {"train.lr": {"float": [0.001, 0.1]}}}, "search.also.train.lr"),
        ({"also": {"train.lr": {"float": [0.001, 0.9], "step": 1e-6}}}, "search.sampler"),
        ({"sampler": {"name": "grid", "seed": 3}}, "search.sampler.seed"),
        ({"sampler": "GridSampler"}, "search.sampler"),
        ({"stopper": "PB2"}, "search.stopper"),
        ({"stopper": {"name": "ASHAScheduler", "max_t": 9}}, "search.stopper.max_t"),
        ({"sampler": "no.such.Sampler"}, "search.sampler"),
    ],
)
def test_invalid_grids_and_unknown_names_are_refused(changes: dict[str, Any], path: str) -> None:
    with expect_faults("invalid-value", path):
        plan(make_spec(search={**SEARCH, **LATTICE, "trials_per_arm": 6, **changes}))


def test_confirm_best_is_at_most_the_size_of_a_grid() -> None:
    confirm = {"best": 7, "seeds": [101], "splits": ["near-iid"]}
    with pytest.raises(PlanError) as caught:
        plan(make_spec(search={**SEARCH, **LATTICE, "trials_per_arm": 50}, confirm=confirm))
    assert {fault.path for fault in caught.value.faults} == {"confirm.best"}
