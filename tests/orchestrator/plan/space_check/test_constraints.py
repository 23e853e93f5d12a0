"""Constraints of a spec hold for every draw, and are refused if they exclude nothing."""

from typing import Any

import pytest

from orchestrator.errors import FaultCode, PlanError
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
        "model.heads <= model.width",
        "model.max_layers <= model.max_layers",
        "model.max_layers <= train.patience",
        "model.max_layers != model.halt.unit",
    ],
)
def test_constraint_that_excludes_nothing_is_refused(constraint: str) -> None:
    with expect_faults("invalid-value", "search.constraints[0]"):
        plan_with_constraints(constraint)


def test_constraint_without_searched_fields_that_nothing_satisfies_is_refused() -> None:
    with pytest.raises(PlanError) as caught:
        plan_with_constraints("model.width <= model.heads")
    assert [(fault.code, fault.path) for fault in caught.value.faults] == [
        (FaultCode.NOTHING_TO_DRAW, "search"),
        (FaultCode.INVALID_VALUE, "search.constraints[0]"),
    ]


def test_unsatisfiable_constraint_is_reported_once_for_all_arms() -> None:
    arms = {"minus-gate": {"why": "plain feed-forward block", "set": {"model.gate": False}}}
    with expect_faults("nothing-to-draw", "search") as caught:
        plan(make_full_spec(arms=arms, search={**SEARCH_PARTS, "constraints": ["model.max_layers > 8"]}))
    assert len(caught.value.faults) == 1


@pytest.mark.parametrize(
    "constraint",
    [
        "model.max_layers",
        "max_layers < 3",
        "model.max_layers < nan",
        "model.max_layers < 1_0",
        "model.max_layers < \uff15",
        "model.max_layers < .inf",
        "model.max_layers < 1e999",
        f"model.max_layers < {'9' * 5000}",
    ],
)
def test_text_that_is_no_constraint_is_refused(tmp_path: Any, constraint: str) -> None:
    (tmp_path / "spec.yaml").write_text(to_yaml(make_full_spec()))
    with expect_faults("invalid-value", "search.constraints[0]"):
        read_spec(tmp_path / "spec.yaml", [f"search.constraints=['{constraint}']"])


@pytest.mark.parametrize("text", ["5 >= model.max_layers", "5 != model.max_layers"])
def test_number_may_be_first(text: str) -> None:
    (sweep_plan,) = plan_with_constraints(text).baseline.space.constraints
    assert sweep_plan == Constraint("model.max_layers", "<=" if ">=" in text else "!=", 5)


@pytest.mark.parametrize("text", ["5", "0x5", "005", "+5", "5.0", "0.5e1"])
def test_number_is_read_as_elsewhere_in_a_spec(text: str) -> None:
    (sweep_plan,) = plan_with_constraints(f"model.max_layers <= {text}").baseline.space.constraints
    assert sweep_plan == Constraint("model.max_layers", "<=", 5)


@pytest.mark.parametrize("constraint", ["train.lr != train.weight_decay", "train.lr != 0.005"])
def test_real_numbers_are_never_drawn_equal(constraint: str) -> None:
    search = {**SEARCH_PARTS, "also": REAL, "constraints": [constraint]}
    with expect_faults("invalid-value", "search.constraints[0]"):
        plan(make_full_spec(arms={}, posthoc={}, search=search))


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
