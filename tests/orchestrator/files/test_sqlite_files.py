"""URLs of SQLite files are converted between relative and absolute; other URLs stay unchanged."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url

from orchestrator.files.sqlite_files import (
    from_relative_url,
    has_password,
    sqlite_file,
    sqlite_url,
    to_absolute_url,
    to_relative_url,
    url_for_mlflow,
    why_no_database,
)

OTHER_URLS = ("postgresql://u@/d?host=/tmp/x", "sqlite://", "sqlite:///:memory:", "sqlite:///file:x?uri=true")


@pytest.mark.parametrize("url", OTHER_URLS)
def test_url_without_a_file_stays_unchanged(url: str) -> None:
    assert sqlite_file(url) is None
    assert (
        to_absolute_url(url)
        == to_relative_url(url, Path("/runs/one"))
        == from_relative_url(url, Path("/runs/one"))
        == url
    )


def test_file_next_to_the_sweep_is_found_after_a_move(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a/mlflow.db?timeout=5"
    relative_url = to_relative_url(url, tmp_path / "a" / "sweep")
    assert relative_url == "sqlite:///../mlflow.db?timeout=5"
    assert from_relative_url(relative_url, tmp_path / "a" / "sweep") == url
    assert from_relative_url(relative_url, tmp_path / "b" / "sweep") == url.replace("/a/", "/b/")
    assert to_relative_url(url, tmp_path / "b" / "sweep") == url, (
        "a file in another folder must keep its absolute path"
    )


def test_relative_file_belongs_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert to_absolute_url("sqlite:///x/y.db") == f"sqlite:///{tmp_path}/x/y.db"
    assert to_absolute_url(f"sqlite:///{tmp_path}/y.db") == f"sqlite:///{tmp_path}/y.db"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///user:pw@h/x.db", True),
        ("sqlite:///user@h/x.db", False),
        ("sqlite:////a/user:pw@h/x.db", False),
        ("postgresql://user:pw@h/x", False),
    ],
)
def test_password_before_a_host_is_detected(url: str, expected: bool) -> None:
    assert has_password(url) is expected


def test_missing_and_empty_databases_are_described(tmp_path: Path) -> None:
    file = tmp_path / "a #1?.db"
    missing_reason = why_no_database(file)
    file.touch()
    empty_reason = why_no_database(file)
    assert "" != missing_reason != empty_reason != ""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        assert why_no_database(file) == empty_reason
        connection.execute("CREATE TABLE found (x)")
        assert why_no_database(file) == "", "tables in the write-ahead log belong to the database"


@pytest.mark.parametrize("name", ["why?", "a%20 b", "é#;&=+"])
def test_folder_with_any_name_has_a_url(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / name / "runs" / "one.db"
    file.parent.mkdir(parents=True)
    url = sqlite_url(file)
    assert sqlite_file(url) == file
    assert (make_url(url).database, dict(make_url(url).query)) == (str(file), {})
    assert make_url(url_for_mlflow(url)).database == str(file)
    relative_url = to_relative_url(f"{url}?timeout=5", file.parent / "sweep")
    assert from_relative_url(relative_url, file.parent / "sweep") == f"{url}?timeout=5"
    monkeypatch.chdir(file.parent)
    assert to_absolute_url("sqlite:///one.db") == url
    moved = tmp_path / "moved?" / "sweep"
    assert from_relative_url(to_relative_url(sqlite_url(file), file.parent / "sweep"), moved) == sqlite_url(
        moved.parent / "one.db"
    )
