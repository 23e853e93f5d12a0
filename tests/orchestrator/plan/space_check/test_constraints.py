"""Constraints that a spec writes: kept by every draw, refused where they decide nothing."""

from typing import Any

import pytest

from orchestrator.errors import PlanError, SpecError
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.spec.load import read_spec, to_yaml
from search_spaces.dimensions import Constraint
from tests.orchestrator.plan.small import SEARCH, full
from tests.support.specs.planned import plan

ALSO = {
    "model.feedforward_width": {"int": [4, 12]},
    "model.max_layers": {"int": [2, 8]},
    "train.lr": {"float": [1e-4, 2e-3], "log": True},
}
REAL = {"train.lr": {"float": [1e-3, 1e-2]}, "train.weight_decay": {"float": [1e-3, 1e-1]}}
STEPPED = {path: {"float": [1e-3, 1e-2], "step": 1e-3} for path in REAL}
MORE = {**SEARCH, "spaces": [], "also": ALSO, "stopper": None}


def planned(*constraints: str) -> Any:
    return plan(full(arms={}, search={**MORE, "constraints": list(constraints)}))


def test_a_constraint_is_planned_and_read_back(tmp_path: Any) -> None:
    found = planned("model.max_layers <= model.feedforward_width", "model.max_layers < 8")
    assert found.baseline.space.constraints == (
        Constraint("model.max_layers", "<=", "model.feedforward_width"),
        Constraint("model.max_layers", "<", 8),
    )
    assert from_json(to_json(found)) == found
    spec = full(arms={}, search={**MORE, "constraints": ["model.max_layers<=model.feedforward_width"]})
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
        ("model.max_layers <= train.patience", "and train.patience is null in every arm: it decides nothing"),
        (
            "model.max_layers != model.halt.unit",
            "must compare numbers, and model.halt.unit can be the text 'sequence'",
        ),
    ],
)
def test_a_constraint_that_decides_nothing_is_told(constraint: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        planned(constraint)
    assert message in str(caught.value)


def test_a_constraint_that_nothing_satisfies_is_told_once_for_all_arms() -> None:
    arms = {"minus-gate": {"why": "plain feed-forward block", "set": {"model.gate": False}}}
    with pytest.raises(PlanError) as caught:
        plan(full(arms=arms, search={**MORE, "constraints": ["model.max_layers > 8"]}))
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
def test_what_is_no_constraint_is_refused(tmp_path: Any, constraint: str, message: str) -> None:
    (tmp_path / "spec.yaml").write_text(to_yaml(full()))
    with pytest.raises(SpecError, match=message):
        read_spec(tmp_path / "spec.yaml", [f"search.constraints=['{constraint}']"])


@pytest.mark.parametrize("written", ["5 >= model.max_layers", "5 != model.max_layers"])
def test_a_number_may_come_first(written: str) -> None:
    (found,) = planned(written).baseline.space.constraints
    assert found == Constraint("model.max_layers", "<=" if ">=" in written else "!=", 5)


@pytest.mark.parametrize("written", ["5", "0x5", "005", "+5", "5.0", "0.5e1"])
def test_a_number_is_read_as_anywhere_in_a_spec(written: str) -> None:
    (found,) = planned(f"model.max_layers <= {written}").baseline.space.constraints
    assert found == Constraint("model.max_layers", "<=", 5)


@pytest.mark.parametrize(
    ("also", "constraint", "message"),
    [
        (REAL, "train.lr != train.weight_decay", "holds for every draw in every arm"),
        (REAL, "train.lr != 0.005", "holds for every draw in every arm"),
    ],
)
def test_real_numbers_are_never_drawn_equal(also: Any, constraint: str, message: str) -> None:
    asked = {**MORE, "also": also, "constraints": [constraint]}
    with pytest.raises(PlanError, match=message) as caught:
        plan(full(arms={}, posthoc={}, search=asked))
    assert {fault.path for fault in caught.value.faults} == {"search.constraints[0]"}


@pytest.mark.parametrize("operator", ["==", "!="])
def test_numbers_of_a_lattice_may_be_equal(operator: str) -> None:
    asked = {**MORE, "also": STEPPED, "constraints": [f"train.lr {operator} train.weight_decay"]}
    assert plan(full(arms={}, posthoc={}, search=asked)).baseline.space.constraints


@pytest.mark.parametrize(
    "constraints",
    [
        ("model.max_layers < 6", "model.max_layers > 3"),
        ("model.feedforward_width < 8", "model.max_layers < model.feedforward_width", "model.max_layers < 6"),
        ("model.max_layers <= model.feedforward_width", "model.max_layers != model.feedforward_width"),
    ],
)
def test_constraints_each_of_which_decides_something_stay(constraints: tuple[str, ...]) -> None:
    assert len(planned(*constraints).baseline.space.constraints) == len(constraints)
