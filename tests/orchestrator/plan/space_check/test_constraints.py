"""Constraints of a spec hold for every draw, and are refused if they exclude nothing."""

from typing import Any

import pytest

from orchestrator.plan.serialise import from_json, to_json
from orchestrator.spec.load import read_spec, to_yaml
from search_spaces.dimensions import Constraint
from tests.orchestrator.plan.small_specs import SEARCH, make_full_spec
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults

ALSO = {
    "model.feedforward_width": {"int": [4, 12]},
    "model.max_layers": {"int": [2, 8]},
    "train.lr": {"float": [1e-4, 2e-3], "log": True},
}
REAL = {"train.lr": {"float": [1e-3, 1e-2]}, "train.weight_decay": {"float": [1e-3, 1e-1]}}
STEPPED = {path: {"float": [1e-3, 1e-2], "step": 1e-3} for path in REAL}
SEARCH_PARTS = {**SEARCH, "spaces": [], "also": ALSO, "stopper": None}


def plan_with_constraints(*constraints: str) -> Any:
    return plan(make_full_spec(arms={}, search={**SEARCH_PARTS, "constraints": list(constraints)}))


def test_constraint_is_planned_and_read_back(tmp_path: Any) -> None:
    sweep_plan = plan_with_constraints("model.max_layers <= model.feedforward_width", "model.max_layers < 8")
    assert sweep_plan.baseline.space.constraints == (
        Constraint("model.max_layers", "<=", "model.feedforward_width"),
        Constraint("model.max_layers", "<", 8),
    )
    assert from_json(to_json(sweep_plan)) == sweep_plan
    spec = make_full_spec(
        arms={}, search={**SEARCH_PARTS, "constraints": ["model.max_layers<=model.feedforward_width"]}
    )
    (tmp_path / "spec.yaml").write_text(to_yaml(spec))
    assert read_spec(tmp_path / "spec.yaml").spec.digest == spec.digest


@pytest.mark.parametrize(
    "constraint",
    [
        "model.max_layers >= 2",
        "model.max_leyers > 3",
        "model.max_layers <= model.max_layers",
        "model.max_layers != model.halt.unit",
        "model.max_layers < model.halt.unit",
    ],
)
def test_constraint_that_excludes_nothing_or_cannot_be_decided_is_refused(constraint: str) -> None:
    with expect_faults("invalid-value", "search.constraints[0]"):
        plan_with_constraints(constraint)


@pytest.mark.parametrize(
    "constraint", ["model.max_layers", "model.max_layers < nan", f"model.max_layers < {'9' * 5000}"]
)
def test_text_that_is_no_constraint_is_refused(tmp_path: Any, constraint: str) -> None:
    (tmp_path / "spec.yaml").write_text(to_yaml(make_full_spec()))
    with expect_faults("invalid-value", "search.constraints[0]"):
        read_spec(tmp_path / "spec.yaml", [f"search.constraints=['{constraint}']"])


def test_number_may_be_first() -> None:
    (constraint,) = plan_with_constraints("5 >= model.max_layers").baseline.space.constraints
    assert constraint == Constraint("model.max_layers", "<=", 5)


def test_real_numbers_are_never_drawn_equal() -> None:
    search = {**SEARCH_PARTS, "also": REAL, "constraints": ["train.lr != train.weight_decay"]}
    with expect_faults("invalid-value", "search.constraints[0]"):
        plan(make_full_spec(arms={}, posthoc={}, search=search))


def test_numbers_of_a_grid_may_be_equal() -> None:
    search = {**SEARCH_PARTS, "also": STEPPED, "constraints": ["train.lr != train.weight_decay"]}
    assert plan(make_full_spec(arms={}, posthoc={}, search=search)).baseline.space.constraints


@pytest.mark.parametrize(
    "constraints",
    [
        ("model.max_layers < 6", "model.max_layers > 3"),
        ("model.max_layers <= model.feedforward_width", "model.max_layers != model.feedforward_width"),
    ],
)
def test_constraints_that_exclude_something_are_retained(constraints: tuple[str, ...]) -> None:
    assert len(plan_with_constraints(*constraints).baseline.space.constraints) == len(constraints)
