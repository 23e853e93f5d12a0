"""What is refused beyond arms and spaces, where the golden specs depend on what is installed."""

from collections import Counter
from typing import Any

import pytest

from orchestrator.errors import PlanError
from tests.orchestrator.plan.small import SEARCH, spec
from tests.support.specs.planned import plan

TWO = [{"metric": "valid/accuracy", "goal": "max"}, {"metric": "valid/depth", "goal": "min"}]


@pytest.mark.parametrize("name", ["cmaes", "CmaEsSampler"])
def test_a_sampler_for_one_objective(name: str) -> None:
    search = {**SEARCH, "sampler": {"name": name}, "stopper": None, "objectives": TWO}
    with pytest.raises(PlanError, match=f"{name} searches for one objective, got 2: choose nsga2 or tpe"):
        plan(spec(search=search))


def test_two_objectives_are_planned() -> None:
    found = plan(spec(search={**SEARCH, "sampler": {"name": "nsga2"}, "stopper": None, "objectives": TWO}))
    assert found.search is not None
    assert [objective.metric for objective in found.search.objectives] == ["valid/accuracy", "valid/depth"]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [({"upper": 1.0}, "above 1;"), ({"lower": -1, "upper": 2}, "below -1 or above 2;")],
)
def test_a_stopper_whose_bounds_no_value_is_beyond(bounds: Any, expected: str) -> None:
    stopper = {"name": "threshold", **bounds}
    with pytest.raises(
        PlanError, match=f"can never stop a trial of baseline: no valid/accuracy is {expected}"
    ):
        plan(spec(search={**SEARCH, "stopper": stopper}))


@pytest.mark.parametrize("name", ["median", "percentile", "threshold", "hyperband", "asha"])
def test_a_stopper_that_comes_too_late(name: str) -> None:
    soon = {"n_startup_trials": 1}
    needed = {"percentile": {"percentile": 25.0, **soon}, "threshold": {"upper": 0.9}, "median": soon}
    stopper = {"name": name, "grace_steps": 100, **needed.get(name, {})}
    with pytest.raises(PlanError, match=r"can never stop a trial of baseline: it waits for step 100"):
        plan(spec(search={**SEARCH, "stopper": stopper}))
    assert plan(spec(search={**SEARCH, "stopper": {**stopper, "grace_steps": 99}})).search is not None


def test_every_metric_a_trial_reports_can_be_an_objective() -> None:
    for metric in ("valid/loss", "valid/depth_p90", "train/loss", "train/grad_norm"):
        assert plan(spec(search={**SEARCH, "objectives": [{"metric": metric, "goal": "min"}]})).search


LATTICE = {
    "spaces": [],
    "stopper": None,
    "sampler": "grid",
    "also": {"model.max_layers": {"int": [2, 4]}, "train.lr": {"choice": [0.001, 0.01]}},
}


def test_a_grid_has_as_many_trials_as_each_arm_has_combinations() -> None:
    arms = {"fixed": {"why": "one depth", "set": {"model.max_layers": 3}, "drop": ["model.max_layers"]}}
    found = plan(spec(arms=arms, search={**SEARCH, **LATTICE, "trials_per_arm": 50}))
    counts = Counter(trial.arm for trial in found.trials if trial.phase == "search")
    assert counts == {"baseline": 6, "fixed": 2}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"trials_per_arm": 5},
            r"search\.trials_per_arm: must be at least 6, the combinations that baseline has, got 5: a grid",
        ),
        (
            {"also": {"train.lr": {"float": [0.001, 0.1]}}},
            r"search\.also\.train\.lr: must be a choice, .* got 0\.001 to 0\.1: list values, give a step",
        ),
        (
            {"also": {"train.lr": {"float": [0.001, 0.9], "step": 1e-6}}},
            r"search\.sampler: must have at most 100,000 combinations .*, got 899,001 in baseline",
        ),
        ({"sampler": {"name": "grid", "seed": 3}}, r"sampler 'grid' must not be given seed"),
        ({"sampler": "GridSampler"}, r"'GridSampler' cannot be used: .* use grid"),
        (
            {"stopper": "PB2"},
            r"search\.stopper: stopper 'PB2' cannot be used: it copies weights and settings",
        ),
        (
            {"stopper": {"name": "ASHAScheduler", "max_t": 9}},
            r"search\.stopper\.max_t: stopper 'ASHAScheduler' has no max_t here",
        ),
        (
            {"sampler": "no.such.Sampler"},
            r"search\.sampler: a sampler's module must be an existing module",
        ),
    ],
)
def test_grids_and_names_of_others_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan(spec(search={**SEARCH, **LATTICE, "trials_per_arm": 6, **changes}))


def test_no_more_is_confirmed_than_a_grid_has() -> None:
    with pytest.raises(PlanError, match=r"confirm\.best: must be at most 6, the combinations that baseline"):
        plan(
            spec(
                search={**SEARCH, **LATTICE, "trials_per_arm": 50},
                confirm={"best": 7, "seeds": [101], "splits": ["near-iid"]},
            )
        )
