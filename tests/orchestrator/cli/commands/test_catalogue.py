"""`haltsweep models`, `tasks` and `spaces` describe every spec name in words and as JSON."""

import json
from typing import Annotated, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import Field

from orchestrator.cli.display.fields import rows
from orchestrator.search import space_catalog
from trainables import catalog
from trainables.settings import Settings
from trainables.training.config import TrainConfig


@pytest.mark.parametrize("kind", ["models", "tasks"])
def test_module_pages_and_schemas_list_every_documented_field(haltsweep, kind):
    names = [line.split()[0] for line in haltsweep(kind).out.splitlines()]
    assert names == list(catalog.names(kind))
    for name in names:
        page, schema = haltsweep(kind, name).out, json.loads(haltsweep(kind, name, "--json").out)[name]
        Draft202012Validator.check_schema(schema)
        config = catalog.load(kind, name).Config
        assert set(schema["properties"]) == set(config.model_fields)
        for field, _, _, meaning in rows(config):
            assert f"│ {field} " in page, (name, field)
            assert meaning or field == "name", f"{field} has no docstring"


def test_training_lists_every_setting(haltsweep):
    printed = haltsweep("training").out
    assert {name for name in TrainConfig.model_fields if f"│ {name} " not in printed} == set()
    assert set(json.loads(haltsweep("training", "--json").out)["properties"]) == set(TrainConfig.model_fields)


def test_space_pages_list_ranges_and_conditions(haltsweep):
    for name in space_catalog.full_names():
        page, space = haltsweep("spaces", name).out, space_catalog.load(name)
        assert all(f"│ {dimension.path} " in page for dimension in space.dimensions)
        assert all(f"only with {constraint}" in page for constraint in space.constraints)
        dimensions = json.loads(haltsweep("spaces", name, "--json").out)[name]["dimensions"]
        assert [row["path"] for row in dimensions] == [dimension.path for dimension in space.dimensions]


def test_unknown_name_is_answered_with_the_nearest_name(haltsweep):
    result = haltsweep("models", "univrsal")
    assert (result.code, result.out) == (2, "")
    assert "'universal'" in result.err


class Inner(Settings):
    """Settings inside other settings."""

    size: int = Field(default=3, gt=0, le=9)
    """How
    large."""


class Outer(Settings):
    """Settings with every kind of field."""

    must: int
    """Is required."""
    inner: Inner | None = Inner()
    """Nested."""
    one: Literal["a", "b"] | None = None
    pairs: tuple[Annotated[tuple[int, float], Field()], ...] = ((1, 0.5),)
    either: int | Literal["auto"] = "auto"
    word: str = "x"
    flag: bool = False


def test_field_rows_describe_every_kind_of_field():
    assert list(rows(Outer)) == [
        ("must", "whole number", "required", "Is required."),
        ("inner", "mapping or null", "as below", "Nested."),
        ("inner.size", "whole number > 0, <= 9", "3", "How large."),
        ("one", "one of a, b or null", "null", ""),
        ("pairs", "list of [whole number, number]", "[[1, 0.5]]", ""),
        ("either", "whole number or auto", "auto", ""),
        ("word", "text", "x", ""),
        ("flag", "true or false", "false", ""),
    ]
