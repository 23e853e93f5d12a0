"""The JSON Schema accepts what `check` accepts and refuses what is wrong in one place."""

import copy
import json
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


def complaints(validator: Draft202012Validator, data: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(data)]


def test_a_right_spec_passes(validator: Draft202012Validator) -> None:
    assert complaints(validator, read_text(WHOLE, "whole").data) == []


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_experiments_pass(validator: Draft202012Validator, path: Path) -> None:
    assert complaints(validator, read_file(path).data) == []


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_what_the_types_refuse_the_schema_refuses(validator: Draft202012Validator, path: Path) -> None:
    found = read_file(path)
    spec, _ = validate(copy.deepcopy(found))
    if spec is None and not found.faults:
        assert complaints(validator, found.data) or path.stem in BEYOND_A_SCHEMA


def _changed(keys: tuple[Any, ...], value: Any) -> Any:
    data = read_text(WHOLE, "whole").data
    inside = data
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = value
    return data


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("baseline", "model", "widht"), 64),
        (("baseline", "model", "halt", "unit"), "word"),
        (("baseline", "model", "name"), "univrsal"),
        (("baseline", "task", "train_length_max"), "long"),
        (("baseline", "train", "lr"), -1),
        (("arms", "minus-gate", "set", "model.gaet"), False),
        (("arms", "minus-gate", "set", "model.gate"), "off"),
        (("arms", "minus-gate", "drop"), ["model.halt.thresh"]),
        (("arms", "baseline"), {"why": "taken", "set": {"model.gate": False}}),
        (("arms", "two, words"), {"why": "no name", "set": {"model.gate": False}}),
        (("grid", "model.wide"), [1, 2]),
        (("grid", "model.width"), ["wide"]),
        (("search", "spaces"), ["haltin"]),
        (("search", "also", "train.learning_rate"), {"float": [0.1, 1]}),
        (("search", "also", "train.lr"), {"float": [0.1, 1], "lgo": True}),
        (("posthoc", "train.lr"), [0.1]),
        (("posthoc", "model.halt.threshold"), ["low"]),
    ],
)
def test_settings_are_known(validator: Draft202012Validator, keys: tuple[Any, ...], value: Any) -> None:
    assert complaints(validator, _changed(keys, value))


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("baseline", "model", "halt"), None),
        (("arms", "minus-gate", "set", "model.halt"), {"unit": "token"}),
        (("arms", "minus-gate", "set", "model.halt.threshold"), 0.5),
        (("arms", "minus-gate", "drop"), ["train.lr"]),
        (("grid", "train.schedule"), ["constant", "cosine"]),
        (("search", "also", "train.steps"), {"fixed": 10}),
        (("search", "sampler"), {"name": "tpe", "n_startup_trials": 5}),
        (("search",), None),
    ],
)
def test_what_is_allowed_passes(validator: Draft202012Validator, keys: tuple[Any, ...], value: Any) -> None:
    assert complaints(validator, _changed(keys, value)) == []


def test_fields_are_explained() -> None:
    schema = json_schema()
    assert "seeds no search has seen" in schema["$defs"]["built-in.Confirm"]["description"]
    assert schema["properties"]["question"]["description"]
    assert json.loads(json.dumps(schema)) == schema


def test_every_section_says_what_it_is() -> None:
    empty = [name for name, one in json_schema()["properties"].items() if len(one["description"]) < 20]
    assert not empty
