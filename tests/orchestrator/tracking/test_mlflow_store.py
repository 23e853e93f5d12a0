"""Locations of MLflow's store, its creation, and changes by others."""

import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient

from orchestrator.errors import InputError
from orchestrator.tracking.mlflow.desired_runs import DesiredRun
from orchestrator.tracking.mlflow.mlflow_runs import RunStore, TrackingOutage, check_uri, outages
from orchestrator.tracking.mlflow.points import Point


@pytest.mark.parametrize("uri", ["./mlruns", "file:///abs/mlruns"])
def test_file_stores_are_refused(uri: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        RunStore(uri, "sweep", tmp_path)


@pytest.mark.parametrize("uri", ["sqlite://bob:pw1@h/mlflow.db", "sqlite:///:memory:"])
def test_sqlite_store_must_be_a_file(uri: str) -> None:
    with pytest.raises(InputError) as raised:
        check_uri(uri)
    assert "pw1" not in str(raised.value)


def test_sqlite_on_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/x {tmp_path} nfs4 rw 0 0\n")
    with pytest.raises(InputError, match="nfs4"):
        check_uri(f"sqlite:///{tmp_path / 'mlflow.db'}", mounts)


def test_unreachable_server_is_an_outage_with_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TrackingOutage, match=r"http://me:\*\*\*@127.0.0.1:9 .*`haltsweep sync`"):
        RunStore("http://me:secret@127.0.0.1:9", "sweep", tmp_path)


def test_error_messages_contain_no_secrets_and_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter2")
    with pytest.raises(TrackingOutage) as caught, outages("http://h"):
        raise RuntimeError(f"<p>hunter2 is wrong {'<br>' * 10**5}")
    assert "<p>*** is wrong <br>" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_new_database_is_in_wal_mode(database: Path, uri: str, tmp_path: Path) -> None:
    RunStore(f"sqlite:///{tmp_path / 'deep' / 'new.db'}", "sweep", tmp_path)
    assert (tmp_path / "deep" / "new.db").read_bytes()[18:20] == b"\x02\x02", "the file header must say WAL"


def test_new_database_is_as_private_as_the_sweep(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    (runs / "sweep").mkdir(parents=True)
    (runs / "sweep").chmod(0o750)
    RunStore(f"sqlite:///{runs / 'mlflow.db'}", "sweep", runs / "mlartifacts")
    assert stat.S_IMODE((runs / "mlflow.db").stat().st_mode) == 0o640
    assert stat.S_IMODE((runs / "mlartifacts" / "sweep").stat().st_mode) == 0o750


def test_experiment_is_created_once_by_many_threads(uri: str, tmp_path: Path) -> None:
    ids: list[str] = []
    barrier = threading.Barrier(6)

    def create() -> None:
        barrier.wait()
        ids.append(RunStore(uri, "sweep", tmp_path).experiment_id)

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 6
    assert len(set(ids)) == 1


def test_deleted_experiment_is_restored(uri: str, tmp_path: Path) -> None:
    store = RunStore(uri, "sweep", tmp_path)
    client = MlflowClient(uri)
    client.delete_experiment(store.experiment_id)
    assert RunStore(uri, "sweep", tmp_path).experiment_id == store.experiment_id
    assert client.get_experiment(store.experiment_id).lifecycle_stage == "active"


def desired_run(arm: str = "a") -> DesiredRun:
    tags = {"haltsweep.ledger": "uid", "haltsweep.kind": "arm", "haltsweep.arm": arm}
    return DesiredRun(f"arm/{arm}", None, arm, 1000, tags=tags)


def test_duplicate_run_with_fewer_metrics_is_deleted(uri: str, tmp_path: Path) -> None:
    store = RunStore(uri, "sweep", tmp_path)
    _, complete_run = (store.create(desired_run(), desired_run().tags) for _ in range(2))
    store.log(complete_run, [Point("x", 1.0, 1, 1)], {}, {})
    assert store.search("uid")["arm/a"].run_id == complete_run.run_id
    remaining = MlflowClient(uri).search_runs([store.experiment_id])
    assert [run.info.run_id for run in remaining] == [complete_run.run_id]


def test_search_finds_only_runs_of_the_same_ledger(uri: str, tmp_path: Path) -> None:
    store = RunStore(uri, "sweep", tmp_path)
    store.create(desired_run(), desired_run().tags)
    store.create(desired_run("b"), {**desired_run("b").tags, "haltsweep.ledger": "a colleague's"})
    assert list(store.search("uid")) == ["arm/a"]


def test_database_of_another_program_is_refused_and_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "foreign.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE experiments (a TEXT)")
        database.commit()
    content = file.read_bytes()
    with pytest.raises(InputError, match=r"foreign\.db"):
        check_uri(f"sqlite:///{file}")
    assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


def test_unfinished_database_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The disk fills up while MLflow creates its tables; the next start succeeds."""
    from mlflow.store.db import utils

    file = tmp_path / "mlflow.db"
    upgrade = utils._upgrade_db

    def fail_with_full_disk(engine: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(utils, "_upgrade_db", fail_with_full_disk)
    with pytest.raises(TrackingOutage, match="No space left on device"):
        RunStore(f"sqlite:///{file}", "sweep", tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(utils, "_upgrade_db", upgrade)
    assert RunStore(f"sqlite:///{file}", "sweep", tmp_path).search("nobody") == {}
    assert {path.name for path in tmp_path.iterdir()} == {"sweep", "mlflow.db"}
