"""The JSON Schema accepts valid specs and refuses specs with one wrong value."""

import copy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from orchestrator.spec.document import read_file, read_text
from orchestrator.spec.load import validate
from orchestrator.spec.schema import json_schema

from .conftest import WHOLE

ROOT = Path(__file__).parents[3]
SPECS = sorted((ROOT / "experiments").glob("**/*.yaml"))
BAD = sorted((ROOT / "tests" / "golden" / "specs").glob("*.yaml"))
BEYOND_A_SCHEMA = {
    "range-cycle",  # relations between values
    "range-float",
    "range-int",
    "range-when",
    "confirm-splits",
}


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def list_errors(validator: Draft202012Validator, data: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(data)]


def test_complete_spec_is_valid(validator: Draft202012Validator) -> None:
    assert list_errors(validator, read_text(WHOLE, "whole").data) == []


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_experiments_are_valid(validator: Draft202012Validator, path: Path) -> None:
    assert list_errors(validator, read_file(path).data) == []


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_schema_refuses_specs_that_the_types_refuse(validator: Draft202012Validator, path: Path) -> None:
    document_ = read_file(path)
    spec, _ = validate(copy.deepcopy(document_))
    if spec is None and not document_.faults:
        assert list_errors(validator, document_.data) or path.stem in BEYOND_A_SCHEMA


def _change_spec(keys: tuple[Any, ...], value: Any) -> Any:
    data = read_text(WHOLE, "whole").data
    container = data
    for key in keys[:-1]:
        container = container[key]
    container[keys[-1]] = value
    return data


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("baseline", "model", "halt", "unit"), "word"),
        (("baseline", "train", "lr"), -1),
        (("arms", "minus-gate", "set", "model.gaet"), False),
        (("arms", "baseline"), {"why": "taken", "set": {"model.gate": False}}),
        (("grid", "model.wide"), [1, 2]),
        (("search", "spaces"), ["haltin"]),
        (("search", "also", "train.lr"), {"float": [0.1, 1], "lgo": True}),
        (("posthoc", "train.lr"), [0.1]),
    ],
)
def test_schema_refuses_wrong_settings(
    validator: Draft202012Validator, keys: tuple[Any, ...], value: Any
) -> None:
    assert list_errors(validator, _change_spec(keys, value))


def test_every_section_has_a_description() -> None:
    undescribed = [
        name for name, section in json_schema()["properties"].items() if len(section["description"]) < 20
    ]
    assert not undescribed
