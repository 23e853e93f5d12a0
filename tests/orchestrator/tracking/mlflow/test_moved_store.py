"""Artifacts of an MLflow in a file are where that file is, and nobody else's are touched."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.tracking.mlflow import mlflow_removal, mlflow_runs
from orchestrator.tracking.mlflow.mlflow_removal import delete_runs
from orchestrator.tracking.mlflow.mlflow_runs import RunStore, TrackingOutage
from orchestrator.tracking.mlflow.moved_store import follow_move


def made(runs: Path, *elsewhere: str) -> str:
    """A store with the columns that count, and experiments of which the others have files `elsewhere`."""
    runs.mkdir(parents=True)
    places = [(runs / "mlartifacts" / name).as_uri() for name in ("0", "50% of it")]
    with closing(sqlite3.connect(runs / "mlflow.db")) as connection, connection:
        connection.execute("CREATE TABLE experiments (experiment_id INTEGER, artifact_location TEXT)")
        connection.execute("CREATE TABLE runs (artifact_uri TEXT)")
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.executemany("INSERT INTO experiments VALUES (?, ?)", enumerate([*places, *elsewhere]))
        connection.executemany("INSERT INTO runs VALUES (?)", [(f"{places[1]}/r/artifacts",), (None,)])
    return f"sqlite:///{runs / 'mlflow.db'}"


def places_in(uri: str) -> list[str | None]:
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as connection:
        query = "SELECT artifact_location FROM experiments UNION ALL SELECT artifact_uri FROM runs"
        return [place for (place,) in connection.execute(query)]


@pytest.mark.parametrize("move", [shutil.move, shutil.copytree])
def test_a_store_that_was_moved_or_copied_has_its_files_beside_it(move: object, tmp_path: Path) -> None:
    others = "file:///others/mlartifacts/x", f"{(tmp_path / 'a b' / 'mlartifacts2').as_uri()}/x"
    made(tmp_path / "a b", *others)
    assert callable(move)
    move(tmp_path / "a b", tmp_path / "c%d")
    uri, place = f"sqlite:///{tmp_path}/c%d/mlflow.db", tmp_path / "c%d" / "mlartifacts"
    follow_move(uri, place)
    assert places_in(uri) == [
        *[(place / name).as_uri() for name in ("0", "50% of it")],
        *others,
        (place / "50% of it" / "r" / "artifacts").as_uri(),
        None,
    ]


def test_unmoved_and_unrelated_stores_are_unchanged(tmp_path: Path) -> None:
    uri = made(tmp_path / "runs")
    before = places_in(uri)
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    for folder in ("runs", "link", "other"):
        follow_move(uri, tmp_path / folder / "mlartifacts")
        follow_move(f"sqlite:///{tmp_path / folder / 'mlflow.db'}", tmp_path / folder / "mlartifacts")
    (tmp_path / "of-none.db").touch()
    follow_move(f"sqlite:///{tmp_path / 'of-none.db'}", tmp_path / "mlartifacts")
    follow_move("http://localhost:5000", tmp_path / "mlartifacts")
    assert places_in(uri) == before
    assert not (tmp_path / "other").exists()


def test_writers_and_removals_use_the_moved_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no whole MLflow")

    for module in (mlflow_runs, mlflow_removal):
        monkeypatch.setattr(module, "open_client", refuse)
    made(tmp_path / "runs")
    for number, ask in enumerate((RunStore, lambda uri, name, place: delete_runs(uri, name, "uid", place))):
        runs = shutil.copytree(tmp_path / "runs", tmp_path / f"copied-{number}")
        uri = f"sqlite:///{runs / 'mlflow.db'}"
        with pytest.raises(TrackingOutage):
            ask(uri, "sweep", runs / "mlartifacts")
        assert str(places_in(uri)[0]).startswith((runs / "mlartifacts").as_uri())
