"""Constraints that a spec writes: kept by every draw, refused where they decide nothing."""

from typing import Any

import pytest

from orchestrator.errors import PlanError, SpecError
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.spec.load import read_spec, to_yaml
from search_spaces.dimensions import Constraint
from tests.orchestrator.plan.small import SEARCH, full
from tests.support.planned import plan

ALSO = {"model.feedforward_width": {"int": [4, 12]}, "model.max_layers": {"int": [2, 8]}}
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
        ("model.max_layers >= 2", "holds whatever is drawn, in every arm: leave it out, or turn it round"),
        ("model.max_layers > 8", "baseline can draw nothing that satisfies model.max_layers > 8"),
        ("model.max_leyers > 3", "model.max_leyers is a field of no arm. Did you mean 'model.max_layers'"),
        ("model.width <= model.heads", "can draw nothing that satisfies model.width <= model.heads"),
        ("model.heads <= model.width", "must have a field that the search varies, got none"),
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


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (
            "model.max_layers",
            r"must be a text like 'model\.chunk\.size <= model\.width', got the text 'model\.max_layers'",
        ),
        ("max_layers < 3", "a path must begin with task, model or train, got 'max_layers'"),
        ("model.max_layers < nan", "a path must begin with task, model or train, got 'nan'"),
    ],
)
def test_what_is_no_constraint_is_refused(tmp_path: Any, constraint: str, message: str) -> None:
    (tmp_path / "spec.yaml").write_text(to_yaml(full()))
    with pytest.raises(SpecError, match=message):
        read_spec(tmp_path / "spec.yaml", [f"search.constraints=['{constraint}']"])
