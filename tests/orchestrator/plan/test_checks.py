"""Grid searches and stoppers that wait for a value."""

from collections import Counter
from typing import Any

import pytest

from tests.orchestrator.plan.small_specs import SEARCH, make_spec
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults


@pytest.mark.parametrize("bounds", [{"upper": 1.0}, {"lower": -1, "upper": 2}])
def test_stopper_with_unreachable_bounds_is_refused(bounds: Any) -> None:
    stopper = {"name": "threshold", **bounds}
    with expect_faults("conflicting-fields", "search.stopper"):
        plan(make_spec(search={**SEARCH, "stopper": stopper}))


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
    ],
)
def test_invalid_grids_are_refused(changes: dict[str, Any], path: str) -> None:
    with expect_faults("invalid-value", path):
        plan(make_spec(search={**SEARCH, **LATTICE, "trials_per_arm": 6, **changes}))
