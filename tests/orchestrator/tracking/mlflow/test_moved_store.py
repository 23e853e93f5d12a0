"""Artifact paths follow a moved MLflow database; paths outside of its folder stay unchanged."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.tracking.mlflow import mlflow_removal, mlflow_runs
from orchestrator.tracking.mlflow.mlflow_removal import delete_runs
from orchestrator.tracking.mlflow.mlflow_runs import RunStore, TrackingOutage
from orchestrator.tracking.mlflow.moved_store import follow_move


def create_store(runs: Path, *other_locations: str) -> str:
    """Create a store with the required columns, and experiments with artifacts inside and at
    `other_locations`."""
    runs.mkdir(parents=True)
    locations = [(runs / "mlartifacts" / name).as_uri() for name in ("0", "50% of it")]
    with closing(sqlite3.connect(runs / "mlflow.db")) as connection, connection:
        connection.execute("CREATE TABLE experiments (experiment_id INTEGER, artifact_location TEXT)")
        connection.execute("CREATE TABLE runs (artifact_uri TEXT)")
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.executemany(
            "INSERT INTO experiments VALUES (?, ?)", enumerate([*locations, *other_locations])
        )
        connection.executemany("INSERT INTO runs VALUES (?)", [(f"{locations[1]}/r/artifacts",), (None,)])
    return f"sqlite:///{runs / 'mlflow.db'}"


def stored_locations(uri: str) -> list[str | None]:
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as connection:
        query = "SELECT artifact_location FROM experiments UNION ALL SELECT artifact_uri FROM runs"
        return [location for (location,) in connection.execute(query)]


def test_moved_store_has_its_artifacts_in_the_new_folder(tmp_path: Path) -> None:
    other_locations = "file:///others/mlartifacts/x", f"{(tmp_path / 'a b' / 'mlartifacts2').as_uri()}/x"
    create_store(tmp_path / "a b", *other_locations)
    shutil.move(tmp_path / "a b", tmp_path / "c%d")
    uri, artifact_folder = f"sqlite:///{tmp_path}/c%d/mlflow.db", tmp_path / "c%d" / "mlartifacts"
    follow_move(uri, artifact_folder)
    assert stored_locations(uri) == [
        *[(artifact_folder / name).as_uri() for name in ("0", "50% of it")],
        *other_locations,
        (artifact_folder / "50% of it" / "r" / "artifacts").as_uri(),
        None,
    ]


def test_unmoved_and_unrelated_stores_are_unchanged(tmp_path: Path) -> None:
    uri = create_store(tmp_path / "runs")
    locations = stored_locations(uri)
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    for folder in ("runs", "link", "other"):
        follow_move(uri, tmp_path / folder / "mlartifacts")
        follow_move(f"sqlite:///{tmp_path / folder / 'mlflow.db'}", tmp_path / folder / "mlartifacts")
    follow_move("http://localhost:5000", tmp_path / "mlartifacts")
    assert stored_locations(uri) == locations
    assert not (tmp_path / "other").exists()


def test_writers_and_removals_use_the_moved_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (mlflow_runs, mlflow_removal):
        monkeypatch.setattr(module, "open_client", lambda *_: "no client")
    create_store(tmp_path / "runs")
    for number, open_store in enumerate(
        (RunStore, lambda uri, name, folder: delete_runs(uri, name, "uid", folder))
    ):
        runs = shutil.copytree(tmp_path / "runs", tmp_path / f"copied-{number}")
        uri = f"sqlite:///{runs / 'mlflow.db'}"
        with pytest.raises(TrackingOutage):
            open_store(uri, "sweep", runs / "mlartifacts")
        assert str(stored_locations(uri)[0]).startswith((runs / "mlartifacts").as_uri())
