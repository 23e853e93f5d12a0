"""What the fixtures of the pytest plug-in are given and cannot use: told before anything runs."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.testing.chaos import _kills, chaos
from orchestrator.testing.spec_under_test import as_texts, spec_file


@pytest.mark.parametrize(
    ("kill_at", "error", "quoted"),
    [
        ([], ValueError, "kill_at"),
        ("3", TypeError, "'3'"),
        (2.5, TypeError, "2.5"),
        (None, TypeError, "None"),
        (True, TypeError, "True"),
        ([1, "2"], TypeError, "'2'"),
    ],
)
def test_what_is_no_event_to_be_killed_at_is_told(
    kill_at: Any, error: type[Exception], quoted: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=quoted):
        chaos("any", kill_at, tmp_path, tmp_path, sessions=None)  # type: ignore[arg-type]


def test_an_event_is_a_run_once() -> None:
    assert _kills([5, 2, 5]) == (5, 2)
    assert _kills(range(1, 3)) == (1, 2)


def test_what_is_no_spec_is_told(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="3"):
        chaos(3, 1, tmp_path, tmp_path, sessions=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("overrides", ["baseline.lr=3", [("baseline.lr", 3)], {"baseline.lr": 3j}])
def test_what_are_no_overrides_is_told(overrides: Any) -> None:
    with pytest.raises(TypeError):
        as_texts(overrides)


@pytest.mark.parametrize(
    ("path", "error"), [(None, TypeError), (".", FileNotFoundError), ("no.yaml", FileNotFoundError)]
)
def test_where_no_spec_is_is_told(path: Any, error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        spec_file(path, (tmp_path, tmp_path))
