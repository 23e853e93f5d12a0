"""Constraints of a spec hold for every draw, and are refused if they exclude nothing."""

from typing import Any

import pytest

from orchestrator.errors import PlanError, SpecError
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.spec.load import read_spec, to_yaml
from search_spaces.dimensions import Constraint
from tests.orchestrator.plan.small_specs import SEARCH, make_full_spec
from tests.support.specs.planned import plan

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
    ("constraint", "message"),
    [
        ("model.max_layers >= 2", "holds for every draw in every arm"),
        ("model.max_layers > 8", "baseline can draw nothing that satisfies model.max_layers > 8"),
        ("model.max_leyers > 3", "model.max_leyers is a field of no arm. Did you mean 'model.max_layers'"),
        ("model.width <= model.heads", "can draw nothing that satisfies model.width <= model.heads"),
        ("model.heads <= model.width", "must have a field that the search varies, got none"),
        ("model.max_layers <= model.max_layers", "holds for every draw in every arm"),
        (
            "model.max_layers <= train.patience",
            "and train.patience is null in every arm: the constraint excludes no values",
        ),
        (
            "model.max_layers != model.halt.unit",
            "must compare numbers, and model.halt.unit can be the text 'sequence'",
        ),
    ],
)
def test_constraint_that_excludes_nothing_is_refused(constraint: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan_with_constraints(constraint)
    assert message in str(caught.value)


def test_unsatisfiable_constraint_is_reported_once_for_all_arms() -> None:
    arms = {"minus-gate": {"why": "plain feed-forward block", "set": {"model.gate": False}}}
    with pytest.raises(PlanError) as caught:
        plan(make_full_spec(arms=arms, search={**SEARCH_PARTS, "constraints": ["model.max_layers > 8"]}))
    assert str(caught.value).count("can draw nothing that satisfies model.max_layers > 8") == 1


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ("model.max_layers", "must compare something"),
        ("max_layers < 3", "a path must begin with task, model or train, got 'max_layers'"),
        ("model.max_layers < nan", "a path must begin with task, model or train, got 'nan'"),
        ("model.max_layers < 1_0", "must be a condition made of"),
        ("model.max_layers < \uff15", "must be a condition made of"),
        ("model.max_layers < .inf", "must be a condition made of"),
        ("model.max_layers < 1e999", "must be a condition made of"),
        (f"model.max_layers < {'9' * 5000}", "must have at most 1000 characters"),
    ],
)
def test_text_that_is_no_constraint_is_refused(tmp_path: Any, constraint: str, message: str) -> None:
    (tmp_path / "spec.yaml").write_text(to_yaml(make_full_spec()))
    with pytest.raises(SpecError, match=message):
        read_spec(tmp_path / "spec.yaml", [f"search.constraints=['{constraint}']"])


@pytest.mark.parametrize("text", ["5 >= model.max_layers", "5 != model.max_layers"])
def test_number_may_be_first(text: str) -> None:
    (sweep_plan,) = plan_with_constraints(text).baseline.space.constraints
    assert sweep_plan == Constraint("model.max_layers", "<=" if ">=" in text else "!=", 5)


@pytest.mark.parametrize("text", ["5", "0x5", "005", "+5", "5.0", "0.5e1"])
def test_number_is_read_as_elsewhere_in_a_spec(text: str) -> None:
    (sweep_plan,) = plan_with_constraints(f"model.max_layers <= {text}").baseline.space.constraints
    assert sweep_plan == Constraint("model.max_layers", "<=", 5)


@pytest.mark.parametrize(
    ("also", "constraint", "message"),
    [
        (REAL, "train.lr != train.weight_decay", "holds for every draw in every arm"),
        (REAL, "train.lr != 0.005", "holds for every draw in every arm"),
    ],
)
def test_real_numbers_are_never_drawn_equal(also: Any, constraint: str, message: str) -> None:
    search = {**SEARCH_PARTS, "also": also, "constraints": [constraint]}
    with pytest.raises(PlanError, match=message) as caught:
        plan(make_full_spec(arms={}, posthoc={}, search=search))
    assert {fault.path for fault in caught.value.faults} == {"search.constraints[0]"}


@pytest.mark.parametrize("operator", ["==", "!="])
def test_numbers_of_a_grid_may_be_equal(operator: str) -> None:
    search = {**SEARCH_PARTS, "also": STEPPED, "constraints": [f"train.lr {operator} train.weight_decay"]}
    assert plan(make_full_spec(arms={}, posthoc={}, search=search)).baseline.space.constraints


@pytest.mark.parametrize(
    "constraints",
    [
        ("model.max_layers < 6", "model.max_layers > 3"),
        ("model.feedforward_width < 8", "model.max_layers < model.feedforward_width", "model.max_layers < 6"),
        ("model.max_layers <= model.feedforward_width", "model.max_layers != model.feedforward_width"),
    ],
)
def test_constraints_that_exclude_something_are_retained(constraints: tuple[str, ...]) -> None:
    assert len(plan_with_constraints(*constraints).baseline.space.constraints) == len(constraints)
