"""SQLite files are named the same from anywhere, and nothing else is touched."""

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

OTHERS = (
    "http://host:5000",
    "postgresql+psycopg://u@h/d",
    "postgresql://u@/d?host=/tmp/x",
    "sqlite://",
    "sqlite:///:memory:",
    "sqlite:///file:x?uri=true",
)


@pytest.mark.parametrize("url", OTHERS)
def test_what_names_no_file_stays(url: str) -> None:
    assert sqlite_file(url) is None
    assert (
        to_absolute_url(url)
        == to_relative_url(url, Path("/runs/one"))
        == from_relative_url(url, Path("/runs/one"))
        == url
    )


def test_a_file_is_found_beside_the_folder_wherever_it_is(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a/mlflow.db?timeout=5"
    kept = to_relative_url(url, tmp_path / "a" / "sweep")
    assert kept == "sqlite:///../mlflow.db?timeout=5"
    assert from_relative_url(kept, tmp_path / "a" / "sweep") == url
    assert from_relative_url(kept, tmp_path / "b" / "sweep") == url.replace("/a/", "/b/")
    assert to_relative_url(url, tmp_path / "b" / "sweep") == url, "elsewhere it is not beside it"


def test_a_relative_file_is_that_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert to_absolute_url("sqlite:///x/y.db") == f"sqlite:///{tmp_path}/x/y.db"
    assert to_absolute_url(f"sqlite:///{tmp_path}/y.db") == f"sqlite:///{tmp_path}/y.db"


@pytest.mark.parametrize(
    ("url", "has"),
    [
        ("sqlite:///user:pw@h/x.db", True),
        ("SQLite+pysqlite:///user:@h/x.db", True),
        ("sqlite:///user@h/x.db", False),
        ("sqlite:////a/user:pw@h/x.db", False),
        ("sqlite:///runs/user:pw@h/x.db", False),
        ("sqlite:///x.db?a=b:c@d", False),
        ("postgresql://user:pw@h/x", False),
    ],
)
def test_a_password_of_a_server_is_seen_where_a_folder_s_name_would_be(url: str, has: bool) -> None:
    assert has_password(url) is has


def test_a_database_that_was_never_made(tmp_path: Path) -> None:
    file = tmp_path / "a #1?.db"
    assert why_no_database(file) == "is not"
    file.touch()
    assert why_no_database(file) == "is empty"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        assert why_no_database(file) == "is empty"
        connection.execute("CREATE TABLE found (x)")
        assert why_no_database(file) == "", "what is in the log of changes is in the database"
    file.write_text("no database")
    assert why_no_database(file) == "", "whoever opens it says what is wrong"
    assert why_no_database(tmp_path) == ""


@pytest.mark.parametrize("name", ["plain", "why?", "a%20b", "a b", "x#y", "%3F", "é;&=+"])
def test_any_folder_has_a_url(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / name / "runs" / "one.db"
    file.parent.mkdir(parents=True)
    url = sqlite_url(file)
    assert sqlite_file(url) == file
    assert (make_url(url).database, dict(make_url(url).query)) == (str(file), {})
    assert make_url(url_for_mlflow(url)).database == str(file)
    kept = to_relative_url(f"{url}?timeout=5", file.parent / "sweep")
    assert from_relative_url(kept, file.parent / "sweep") == f"{url}?timeout=5"
    monkeypatch.chdir(file.parent)
    assert to_absolute_url("sqlite:///one.db") == url
    moved = tmp_path / "moved?" / "sweep"
    assert from_relative_url(to_relative_url(sqlite_url(file), file.parent / "sweep"), moved) == sqlite_url(
        moved.parent / "one.db"
    )
