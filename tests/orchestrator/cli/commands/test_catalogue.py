"""What a spec can name is told to people in words and to scripts in full."""

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

MODULES = [(kind, name) for kind in ("models", "tasks") for name in catalog.names(kind)]
PYTHON = re.compile(
    r"None|Literal|tuple|Annotated|object at|<|typing|\bint\b|\bbool\b|\bstr\b|\bTrue\b|\bFalse\b"
)
BOUND = re.compile(r" (>=|<=|>|<) ")


@pytest.mark.parametrize("kind", ["models", "tasks"])
def test_every_module_is_listed_with_its_first_line(haltsweep, kind):
    result = haltsweep(kind)
    assert result.code == 0
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines] == list(catalog.names(kind))
    assert all(re.match(r"\S+ +[A-Z`].*\.$|\S+ +.*\?$", line) for line in lines)


@pytest.mark.parametrize(("kind", "name"), MODULES)
def test_fields_are_in_words(haltsweep, kind, name):
    config = catalog.load(kind, name).Config
    found = list(rows(config))
    for path, type_, default, meaning in found:
        assert not PYTHON.search(BOUND.sub(" ", type_)), (path, type_)
        assert not PYTHON.search(default), (path, default)
        assert "\n" not in meaning
        assert meaning or path == "name", f"{path} has no docstring"
    result = haltsweep(kind, name)
    assert result.code == 0
    for path, *_ in found:
        assert f"│ {path} " in result.out


@pytest.mark.parametrize(("kind", "name"), MODULES)
def test_settings_for_scripts_are_a_schema(haltsweep, kind, name):
    found = json.loads(haltsweep(kind, name, "--json").out)
    assert list(found) == [name]
    Draft202012Validator.check_schema(found[name])
    assert set(found[name]["properties"]) == set(catalog.load(kind, name).Config.model_fields)


@pytest.mark.parametrize("name", catalog.names("tasks"))
def test_tasks_tell_their_splits(haltsweep, name):
    module = catalog.load("tasks", name)
    shown = haltsweep("tasks", name).out
    for split in module.splits(module.Config()):
        assert re.search(rf"│ {split.name} +│ {split.role} +│ {split.length_min} ", shown)


@pytest.mark.parametrize("name", space_catalog.full_names())
def test_spaces_tell_range_condition_and_source(haltsweep, name):
    result = haltsweep("spaces", name)
    assert result.code == 0
    space = space_catalog.load(name)
    for dimension in space.dimensions:
        assert f"│ {dimension.path} " in result.out
    for constraint in space.constraints:
        assert f"only with {constraint}" in result.out
    assert not re.search(r"Choice|Float\(|Int\(|Fixed|\('", result.out)
    found = json.loads(haltsweep("spaces", name, "--json").out)[name]
    assert [dimension["path"] for dimension in found["dimensions"]] == [
        dimension.path for dimension in space.dimensions
    ]


def test_a_condition_is_told(haltsweep):
    assert re.search(
        r"│ model\.chunk\.size +│ one of [^│]+│ model\.chunk\.by is size +│",
        haltsweep("spaces", "chunking").out,
    )


@pytest.mark.parametrize(("kind", "wrong", "right"), [
    ("models", "univrsal", "universal"), ("tasks", "list-ops", "listops"), ("spaces", "haltin", "halting"),
])  # fmt: skip
def test_unknown_names_get_the_nearest(haltsweep, kind, wrong, right):
    result = haltsweep(kind, wrong)
    assert (result.code, result.out) == (2, "")
    assert f"named {wrong!r}. Did you mean {right!r}? Known: " in result.err


class Inner(Settings):
    """Nested."""

    size: int = Field(default=3, gt=0, le=9)
    """How
    large."""


class Outer(Settings):
    """All kinds of fields."""

    must: int
    """Is required."""
    inner: Inner | None = Inner()
    """Nested."""
    one: Literal["a", "b"] | None = None
    pairs: tuple[Annotated[tuple[int, float], Field()], ...] = ((1, 0.5),)
    either: int | Literal["auto"] = "auto"
    word: str = "x"
    flag: bool = False


def test_every_kind_of_field():
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


def test_bounds_stand_before_null():
    class Bounded(Settings):
        size: int | None = Field(default=None, ge=1, lt=5)

    assert type_text(Bounded.model_fields["size"]) == "whole number >= 1, < 5 or null"
