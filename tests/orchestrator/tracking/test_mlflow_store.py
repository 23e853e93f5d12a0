"""MLflow's store: where it may be, and what happens when others touch it."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from orchestrator.errors import InputError
from orchestrator.ledger.sql.engine import hurried
from orchestrator.tracking.mlflow.desired_runs import DesiredRun
from orchestrator.tracking.mlflow.mlflow_runs import RunStore, TrackingOutage, check_uri, default_uri, outages
from orchestrator.tracking.mlflow.points import Point, batches
from trainables.process_identity import origin


@pytest.mark.parametrize("uri", ["./mlruns", "mlruns", "/abs/mlruns", "file:///abs/mlruns", ""])
def test_file_stores_are_refused(uri: str, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"must be a database or a server, and .* is a file store.*use sqlite:////"
    ):
        check_uri(uri)
    with pytest.raises(InputError, match="is a file store"):
        RunStore(uri, "sweep", tmp_path)


@pytest.mark.parametrize(
    "uri", ["sqlite://bob:pw1@h/mlflow.db", "sqlite+pysqlite://h/x.db", "sqlite://", "sqlite:///:memory:"]
)
def test_a_store_in_sqlite_is_a_file(uri: str) -> None:
    with pytest.raises(InputError, match=r"must be a file, without user or host, got 'sqlite") as raised:
        check_uri(uri)
    assert "pw1" not in str(raised.value)


def test_sqlite_on_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/x {tmp_path} nfs4 rw 0 0\n")
    with pytest.raises(InputError, match="is on nfs4"):
        check_uri(f"sqlite:///{tmp_path / 'mlflow.db'}", mounts)


@pytest.mark.parametrize(
    "uri", ["http://localhost:5000", "https://u:p@host", "postgresql://h/d", "databricks"]
)
def test_servers_and_databases_are_taken(uri: str) -> None:
    check_uri(uri)


def test_the_default_is_shared_by_the_sweeps_of_a_folder(tmp_path: Path) -> None:
    assert (
        default_uri(tmp_path / "one")
        == default_uri(tmp_path / "two")
        == f"sqlite:///{tmp_path / 'mlflow.db'}"
    )


def test_a_server_that_is_away_is_an_outage_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(
        TrackingOutage, match=r"MLflow at http://127.0.0.1:9 failed .*nothing is lost, `haltsweep sync`"
    ):
        RunStore("http://127.0.0.1:9", "sweep", tmp_path)


@pytest.mark.parametrize(
    ("said", "todo"),
    [
        ("Detected out-of-date database schema (found version ff)", "made by another version of MLflow: use"),
        (
            "database disk image is malformed",
            "damaged: keep a copy of it and restore it from a backup, or mov",
        ),
        (
            "file is not a database",
            "damaged: keep a copy of it and restore it from a backup, or move it away",
        ),
        ("(sqlite3.OperationalError) database is locked", "wait for that process or stop it"),
        ("attempt to write a readonly database", "make the file and its folder writable for this user"),
        (
            "API ... the response body was not in a valid JSON format. Response body: '<html>'",
            "is no MLflow, but",
        ),
        ("database or disk is full", "the disk is full: free some space, or have your quota raised"),
    ],
)
def test_what_does_not_mend_itself_comes_with_what_to_do(said: str, todo: str) -> None:
    with pytest.raises(TrackingOutage) as caught, outages("sqlite:///mlflow.db"):
        raise RuntimeError(said)
    assert f"({RuntimeError.__name__}: {said}); nothing is lost: " in str(caught.value)
    assert todo in str(caught.value)
    assert str(caught.value).endswith(", then `haltsweep sync` catches up")


@pytest.mark.parametrize(
    "said", ["UNAUTHENTICATED: who?", "PERMISSION_DENIED: x", "with error code 403 != 200"]
)
def test_a_server_that_refuses_whom_it_is_asked_by(said: str) -> None:
    with (
        pytest.raises(TrackingOutage, match=r"refuses them \((403|[A-Z_]+)\); give others"),
        outages("http://h"),
    ):
        raise RuntimeError(said)


def test_what_answers_tells_no_secret_of_the_environment_and_no_book(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter2")
    with pytest.raises(TrackingOutage) as caught, outages("http://h"):
        raise RuntimeError(f"<p>hunter2 is wrong {'<br>' * 10**5}")
    assert "<p>*** is wrong <br>" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_passwords_are_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TrackingOutage, match=r"MLflow at http://me:\*\*\*@127.0.0.1:9 failed"):
        RunStore("http://me:secret@127.0.0.1:9", "sweep", tmp_path)


def test_a_new_database_is_in_wal_mode(database: Path, uri: str, tmp_path: Path) -> None:
    RunStore(f"sqlite:///{tmp_path / 'deep' / 'new.db'}", "sweep", tmp_path).close()
    assert (tmp_path / "deep" / "new.db").read_bytes()[18:20] == b"\x02\x02", "SQLite's file format of WAL"


@pytest.mark.parametrize(("sweep", "database"), [(0o700, 0o600), (0o750, 0o640)])
def test_a_new_database_is_as_private_as_the_sweep(tmp_path: Path, sweep: int, database: int) -> None:
    runs = tmp_path / "runs"
    (runs / "sweep").mkdir(parents=True)
    (runs / "sweep").chmod(sweep)
    RunStore(f"sqlite:///{runs / 'mlflow.db'}", "sweep", runs / "mlartifacts").close()
    assert stat.S_IMODE((runs / "mlflow.db").stat().st_mode) == database
    assert stat.S_IMODE((runs / "mlartifacts" / "sweep").stat().st_mode) == sweep


def test_commits_of_what_can_be_rebuilt_do_not_wait_for_the_disk(uri: str, tmp_path: Path) -> None:
    store = RunStore(uri, "sweep", tmp_path)
    with store._store.engine.connect() as one, store._store.engine.connect() as other:
        levels = [each.exec_driver_sql("PRAGMA synchronous").scalar() for each in (one, other)]
    store.close()
    assert levels == [1, 1], "SQLite's NORMAL"


def test_while_a_database_is_made_no_other_is_hurried(tmp_path: Path) -> None:
    """Another thread may open a ledger at that moment, whose commits wait for the disk."""
    fresh, other = tmp_path / "fresh" / "mlflow.db", tmp_path / "other" / "mlflow.db"
    for file in (fresh, other):
        file.parent.mkdir()
    with hurried(fresh):
        levels = [level(file) for file in (fresh, other)]
    assert (*levels, level(fresh)) == (0, 2, 2), "SQLite's OFF, FULL and FULL"


def level(file: Path) -> int:
    engine = create_engine(f"sqlite:///{file}")
    with engine.connect() as connection:
        found = connection.exec_driver_sql("PRAGMA synchronous").scalar()
    engine.dispose()
    assert isinstance(found, int)
    return found


def test_an_experiment_is_created_once_by_many(uri: str, tmp_path: Path) -> None:
    found: list[str] = []
    barrier = threading.Barrier(6)

    def create() -> None:
        barrier.wait()
        store = RunStore(uri, "sweep", tmp_path)
        found.append(store.experiment_id)
        store.close()

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len(set(found)) == 1


def test_a_deleted_experiment_is_restored(uri: str, tmp_path: Path) -> None:
    first = RunStore(uri, "sweep", tmp_path)
    first._store.delete_experiment(first.experiment_id)
    again = RunStore(uri, "sweep", tmp_path)
    assert again.experiment_id == first.experiment_id
    assert again._store.get_experiment(again.experiment_id).lifecycle_stage == "active"
    again.close()


def desired(arm: str = "a") -> DesiredRun:
    tags = {"haltsweep.ledger": "uid", "haltsweep.kind": "arm", "haltsweep.arm": arm}
    return DesiredRun(f"arm/{arm}", None, arm, 1000, tags=tags)


def test_of_a_run_stored_twice_the_fuller_stays(uri: str, tmp_path: Path) -> None:
    store = RunStore(uri, "sweep", tmp_path)
    _, rich = (store.create(desired(), desired().tags) for _ in range(2))
    store.log(rich, [Point("x", 1.0, 1, 1)], {}, {})
    assert store.search("uid")["arm/a"].run_id == rich.run_id
    assert [run.info.run_id for run in store._store.search_runs([store.experiment_id], "", 1)] == [
        rich.run_id
    ]
    store.close()


def test_only_runs_of_the_same_ledger_are_ours(uri: str, tmp_path: Path) -> None:
    store = RunStore(uri, "sweep", tmp_path)
    store.create(desired(), desired().tags)
    store.create(desired("b"), {**desired("b").tags, "haltsweep.ledger": "a colleague's"})
    assert list(store.search("uid")) == ["arm/a"]
    store.close()


def test_searching_goes_over_pages(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.tracking.mlflow.mlflow_runs.PAGE", 2)
    store = RunStore(uri, "sweep", tmp_path)
    for arm in "abcde":
        store.create(desired(arm), desired(arm).tags)
    assert sorted(store.search("uid")) == [f"arm/{arm}" for arm in "abcde"]
    store.close()


@pytest.mark.parametrize(
    "module", ["orchestrator.tracking.background", "orchestrator.ledger.store", "orchestrator.provenance"]
)
def test_what_a_launcher_imports_is_light(module: str) -> None:
    heavy = "torch, ray, mlflow, optuna, pyarrow"
    code = f"import sys, {module}; print([name for name in '{heavy}'.split(', ') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "[]"


class TestBatches:
    """Requests of bounded size that keep steps whole."""

    @staticmethod
    def points(*sizes: int) -> list[Point]:
        return [
            Point(f"m{number}", 0.0, 0, step) for step, size in enumerate(sizes) for number in range(size)
        ]

    @pytest.mark.parametrize(
        ("sizes", "expected"),
        [
            ((), []),
            ((3,), [3]),
            ((3, 3, 3), [9]),
            ((4, 4, 4), [8, 4]),
            ((9, 2), [9, 2]),
            ((25,), [10, 10, 5]),
            ((3, 25, 3), [3, 10, 10, 5, 3]),
            ((10, 10), [10, 10]),
        ],
    )
    def test_sizes(self, sizes: tuple[int, ...], expected: list[int]) -> None:
        points = self.points(*sizes)
        parts = batches(points, 10)
        assert [len(part) for part in parts] == expected
        assert [point for part in parts for point in part] == points


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_the_database_of_another_program_is_refused_and_stays_as_it_is(mode: str, tmp_path: Path) -> None:
    file = tmp_path / "foreign.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute(f"PRAGMA journal_mode={mode}")
        database.execute("CREATE TABLE experiments (a TEXT)")
        database.commit()
    before = file.read_bytes()
    with pytest.raises(InputError, match=r"foreign\.db' is a database of another program"):
        check_uri(f"sqlite:///{file}")
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_database_that_was_not_finished_is_in_nobody_s_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The disk fills up while MLflow makes its tables: once there is room, all goes on."""
    from mlflow.store.db import utils

    file = tmp_path / "mlflow.db"
    upgrade = utils._upgrade_db

    def fill_up(engine: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(utils, "_upgrade_db", fill_up)
    with pytest.raises(TrackingOutage, match="No space left on device"):
        RunStore(f"sqlite:///{file}", "sweep", tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(utils, "_upgrade_db", upgrade)
    killed = tmp_path / f".mlflow.db-999999999-{origin()}aa-x"
    killed.mkdir()
    store = RunStore(f"sqlite:///{file}", "sweep", tmp_path)
    assert store.search("nobody") == {}
    store.close()
    assert not killed.exists()


def test_a_file_system_without_hard_links_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    store = RunStore(f"sqlite:///{tmp_path / 'mlflow.db'}", "sweep", tmp_path)
    assert store.search("nobody") == {}
    store.close()
