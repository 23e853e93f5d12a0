"""`haltsweep models`, `tasks` and `spaces` describe every spec name in words and as JSON."""

import json
import re
from typing import Annotated, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import Field

from orchestrator.cli.display.fields import rows, type_text
from orchestrator.search import space_catalog
from trainables import catalog
from trainables.settings import Settings
from trainables.training.config import TrainConfig

MODULES = [(kind, name) for kind in ("models", "tasks") for name in catalog.names(kind)]
PYTHON_SYNTAX = re.compile(
    r"None|Literal|tuple|Annotated|object at|<|typing|\bint\b|\bbool\b|\bstr\b|\bTrue\b|\bFalse\b"
)
BOUND_SIGN = re.compile(r" (>=|<=|>|<) ")


@pytest.mark.parametrize("kind", ["models", "tasks"])
def test_listing_shows_every_module_with_its_first_line(haltsweep, kind):
    result = haltsweep(kind)
    assert result.code == 0
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines] == list(catalog.names(kind))
    assert all(re.match(r"\S+ +[A-Z`].*\.$|\S+ +.*\?$", line) for line in lines)


@pytest.mark.parametrize(("kind", "name"), MODULES)
def test_module_page_describes_fields_in_words(haltsweep, kind, name):
    config = catalog.load(kind, name).Config
    fields = list(rows(config))
    for field, type_words, default, meaning in fields:
        assert not PYTHON_SYNTAX.search(BOUND_SIGN.sub(" ", type_words)), (field, type_words)
        assert not PYTHON_SYNTAX.search(default), (field, default)
        assert "\n" not in meaning
        assert meaning or field == "name", f"{field} has no docstring"
    result = haltsweep(kind, name)
    assert result.code == 0
    for field, *_ in fields:
        assert f"│ {field} " in result.out


@pytest.mark.parametrize(("kind", "name"), MODULES)
def test_module_json_is_a_json_schema(haltsweep, kind, name):
    schemas = json.loads(haltsweep(kind, name, "--json").out)
    assert list(schemas) == [name]
    Draft202012Validator.check_schema(schemas[name])
    assert set(schemas[name]["properties"]) == set(catalog.load(kind, name).Config.model_fields)


@pytest.mark.parametrize("name", catalog.names("tasks"))
def test_task_page_lists_its_splits(haltsweep, name):
    module = catalog.load("tasks", name)
    page = haltsweep("tasks", name).out
    for split in module.splits(module.Config()):
        assert re.search(rf"│ {split.name} +│ {split.role} +│ {split.length_min} ", page)


def test_tasks_list_their_metrics_with_the_better_direction(haltsweep):
    printed = haltsweep("tasks", "flipflop").out
    assert re.search(r"│ accuracy_last +│ higher │ share of right answers at the last position", printed)
    assert re.search(r"│ loss +│ lower ", printed)
    assert "depth_p10" not in printed, "attributes without an explanation are left out"


def test_training_lists_every_setting(haltsweep):
    printed = haltsweep("training").out
    assert {name for name in TrainConfig.model_fields if f"│ {name} " not in printed} == set()
    assert set(json.loads(haltsweep("training", "--json").out)["properties"]) == set(TrainConfig.model_fields)


@pytest.mark.parametrize("name", space_catalog.full_names())
def test_space_page_lists_ranges_and_conditions(haltsweep, name):
    result = haltsweep("spaces", name)
    assert result.code == 0
    space = space_catalog.load(name)
    for dimension in space.dimensions:
        assert f"│ {dimension.path} " in result.out
    for constraint in space.constraints:
        assert f"only with {constraint}" in result.out
    assert not re.search(r"Choice|Float\(|Int\(|Fixed|\('", result.out)
    space_json = json.loads(haltsweep("spaces", name, "--json").out)[name]
    assert [dimension["path"] for dimension in space_json["dimensions"]] == [
        dimension.path for dimension in space.dimensions
    ]


def test_space_page_shows_a_condition(haltsweep):
    assert re.search(
        r"│ model\.chunk\.size +│ one of [^│]+│ model\.chunk\.by is size +│",
        haltsweep("spaces", "chunking").out,
    )


@pytest.mark.parametrize(("kind", "unknown_name", "nearest_name"), [
    ("models", "univrsal", "universal"), ("tasks", "list-ops", "listops"), ("spaces", "haltin", "halting"),
])  # fmt: skip
def test_unknown_name_is_answered_with_the_nearest_name(haltsweep, kind, unknown_name, nearest_name):
    result = haltsweep(kind, unknown_name)
    assert (result.code, result.out) == (2, "")
    assert repr(nearest_name) in result.err


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


def test_bounds_precede_null_in_the_type_text():
    class Bounded(Settings):
        size: int | None = Field(default=None, ge=1, lt=5)

    assert type_text(Bounded.model_fields["size"]) == "whole number >= 1, < 5 or null"
