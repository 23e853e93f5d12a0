"""What the fixtures of the pytest plug-in are given and cannot use: told before anything runs."""

import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.testing.chaos import _kills, chaos
from orchestrator.testing.spec_under_test import as_texts, spec_file


@pytest.mark.parametrize(
    ("kill_at", "error", "message"),
    [
        ([], ValueError, "kill_at must name at least one event, got none: nothing would be killed"),
        ("3", TypeError, "kill_at must be the number of an event, or several, got '3'"),
        (2.5, TypeError, "got 2.5"),
        (None, TypeError, "got None"),
        (True, TypeError, "got True"),
        ([1, "2"], TypeError, "got '2'"),
    ],
)
def test_what_is_no_event_to_be_killed_at_is_told(
    kill_at: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        chaos("any", kill_at, tmp_path, tmp_path, sessions=None)  # type: ignore[arg-type]


def test_an_event_is_a_run_once() -> None:
    assert _kills([5, 2, 5]) == (5, 2)
    assert _kills(range(1, 3)) == (1, 2)


def test_what_is_no_spec_is_told(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="spec must be what sweep_spec returned, or a path, got 3"):
        chaos(3, 1, tmp_path, tmp_path, sessions=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("baseline.lr=3", "overrides must be values by path, or a list of texts"),
        ([("baseline.lr", 3)], "overrides must be values by path, or a list of texts"),
        ({"baseline.lr": 3j}, "overrides must be values that a spec can hold, got 3j for baseline.lr"),
    ],
)
def test_what_are_no_overrides_is_told(overrides: Any, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        as_texts(overrides)


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        (None, TypeError, "a spec must be named by its path, got None"),
        (".", FileNotFoundError, "a spec must be a file to be tested, got the folder"),
        ("no.yaml", FileNotFoundError, "a test of a spec needs a spec, found no /"),
    ],
)
def test_where_no_spec_is_is_told(path: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=re.escape(message)):
        spec_file(path, (tmp_path, tmp_path))
