"""Dotted paths of fields, and the messages about them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.paths import (
    MISSING,
    Paths,
    built_in_problem,
    find_keys,
    lookup,
    overlap,
    path_problem,
    with_value,
    with_values,
)


@pytest.mark.parametrize("path", ["lr", "optimizer.lr", "weight-decay", "λ", "layers.0.size"])
def test_paths_of_custom_trainables_are_accepted(path: str) -> None:
    assert path_problem(path) is None
    assert built_in_problem(path) is not None


@pytest.mark.parametrize(
    ("path", "problem"),
    [("modl.width", "got 'modl.width'.* 'model.width'"), ("train", "got 'train'")],
)
def test_invalid_path_has_a_problem(path: str, problem: str) -> None:
    assert re.search(problem, built_in_problem(path))


def test_lookup_distinguishes_null_and_missing_fields() -> None:
    settings = {"model": {"halt": None, "width": 3}}
    assert lookup(settings, "model.halt") is None
    assert lookup(settings, "model.halt.unit") is MISSING
    assert lookup(settings, "model.width.more") is MISSING
    assert lookup(settings, "train.lr") is MISSING


def test_overlap_compares_whole_names() -> None:
    assert overlap("model.halt", "model.halt.unit")
    assert overlap("model.halt.unit", "model.halt")
    assert overlap("model.halt", "model.halt")
    assert not overlap("model.halt", "model.halting")


SETTINGS = {"model": {"halt": {"unit": "token", "threshold": 0.5}, "width": 8}, "train": {"lr": 0.1}}


@given(
    st.dictionaries(
        st.sampled_from(["model.halt.unit", "model.width", "train.lr", "train.new"]), st.integers()
    )
)
def test_assigned_field_can_be_looked_up(assignment):
    changed = with_values(SETTINGS, assignment)
    assert {path: lookup(changed, path) for path in assignment} == assignment


@pytest.mark.parametrize(
    ("path", "parent"),
    [("model.halt.threshold", r"model\.halt .*null"), ("model.chunk.size", r"model\.chunk ")],
)
def test_path_through_a_missing_field_is_refused(path, parent):
    with pytest.raises(ValueError, match=rf"{path} .*{parent}"):
        with_values({"model": {"halt": None}}, {path: 1})


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join), unique=True))
def test_touching_paths_equal_those_of_a_full_comparison(paths: list[str]) -> None:
    for number, path in enumerate(paths):
        earlier_paths = paths[:number]
        assert Paths(earlier_paths).overlapping(path) == [
            earlier_path for earlier_path in earlier_paths if overlap(path, earlier_path)
        ]
    for path in paths:
        assert path in Paths(paths).overlapping(path)


@pytest.mark.parametrize("path", ["", "a..b", "a.", "lr ", "a\x1b"])
def test_malformed_path_is_refused(path: str) -> None:
    assert repr(path) in path_problem(path)


NAMED_SETTINGS = {
    "weight-decay": 0.1,
    "optimizer.lr": 0.2,
    "optimizer": {"lr": 0.3, "betas": [0.9, 0.999]},
    "layers": [{"size": 3}, {"size": 4}],
    "a.b": {"c.d": 5},
}


@pytest.mark.parametrize(
    ("path", "keys", "value"),
    [
        ("weight-decay", ("weight-decay",), 0.1),
        ("optimizer.lr", ("optimizer.lr",), 0.2),
        ("optimizer.betas.1", ("optimizer", "betas", 1), 0.999),
        ("layers.1.size", ("layers", 1, "size"), 4),
        ("a.b.c.d", ("a.b", "c.d"), 5),
    ],
)
def test_fields_are_found_by_path(path: str, keys: tuple[str | int, ...], value: float) -> None:
    assert find_keys(NAMED_SETTINGS, path) == keys
    assert lookup(NAMED_SETTINGS, path) == value
    changed = with_value(NAMED_SETTINGS, path, 7)
    assert lookup(changed, path) == 7
    assert lookup(NAMED_SETTINGS, path) == value
    assert changed.keys() == NAMED_SETTINGS.keys()


@pytest.mark.parametrize("path", ["layers.2.size", "layers.-1", "optimizer.wd", "a"])
def test_missing_field_raises_an_error(path: str) -> None:
    assert lookup(NAMED_SETTINGS, path) is MISSING
