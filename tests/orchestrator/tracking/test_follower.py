"""The background writer of MLflow as a process that is drained, killed or orphaned."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.files.file_digests import write_manifest
from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.tracking import follower as followers
from orchestrator.tracking.background import LOG, start_follower
from orchestrator.tracking.follower import FollowerLoop
from orchestrator.tracking.mlflow.mlflow_writer import MlflowWriter
from orchestrator.tracking.state import projection_lock, read_state
from orchestrator.tracking.summary import ArmSummary
from orchestrator.tracking.sync import artifact_root, sync
from tests.orchestrator.tracking.conftest import append
from tests.support.mlflow.mlflow_db import StoredRun, runs
from tests.support.stores.parquet_records import read_records
from tests.support.sweeps.histories import begun, history


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def project_anew(
    folder: SweepFolder, ledger: Ledger, plan: Plan, empty: Path, *, files: bool = False
) -> dict[str, StoredRun]:
    """Return the runs of an undisturbed projection of the ledger."""
    file = folder.root.parent / "undisturbed.db"
    shutil.copy(empty, file)
    writer = MlflowWriter(f"sqlite:///{file}", plan, ledger, artifact_root(folder))
    writer.update()
    if files:
        writer.upload(folder)
    return runs(file, plan.name)


@pytest.mark.slow
def test_drained_follower_has_written_all_events(folder, ledger, plan, uri, database, empty_mlflow):
    lease = ledger.claim(Holder.current())
    events = list(history(plan, 1))
    ledger.append(events[:20], lease)
    follower = start_follower(folder, folder.ledger_url, uri)
    wait_until(lambda: len(runs(database, plan.name)) > 3)
    assert "RUNNING" in {run.status for run in runs(database, plan.name).values()}
    ledger.append(events[20:], lease)
    ledger.release(lease)
    assert follower.drain(60) is None, (folder.root / LOG).read_text()
    assert runs(database, plan.name) == project_anew(folder, ledger, plan, empty_mlflow)
    assert len(read_records(folder)) == len(plan.trials)
    state = read_state(folder)
    assert (state.position, state.error) == (ledger.last_seq(), "")
    assert sync(folder, ledger, uri).runs == 0
    assert sync(folder, ledger, uri).total == 0


@pytest.mark.slow
def test_sync_repairs_the_store_after_a_kill_of_the_follower(
    folder, ledger, plan, uri, database, empty_mlflow
):
    stream = random.Random(0)
    lease = ledger.claim(Holder.current())
    events = list(history(plan, 0))
    for _ in range(2):
        for event in events[: len(events) // 2]:
            ledger.append([event], lease)
        events = events[len(events) // 2 :]
        num_before = len(runs(database, plan.name))
        follower = start_follower(folder, folder.ledger_url, uri)
        num_new = stream.randrange(4)
        wait_until(lambda: len(runs(database, plan.name)) > num_before + num_new)  # noqa: B023 - called at once
        follower.kill()
    ledger.append(events, lease)
    ledger.release(lease)
    sync(folder, ledger, uri)
    assert runs(database, plan.name) == project_anew(folder, ledger, plan, empty_mlflow, files=True)
    assert sync(folder, ledger, uri).total == 0


LAUNCHER = """
import sys, time
from orchestrator.identity import SweepFolder, digest
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import from_json
from orchestrator.tracking.background import start_follower
from pathlib import Path
from tests.support.sweeps.histories import history

folder = SweepFolder(Path(sys.argv[1]))
plan = from_json(folder.plan.read_text())
ledger = Ledger.open(folder.ledger_url, folder.name)
lease = ledger.claim(Holder.current())
ledger.append(list(history(plan, 1))[:20], lease)
print(start_follower(folder, folder.ledger_url, sys.argv[2]).pid, flush=True)
time.sleep(600)
"""


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.slow
def test_follower_of_a_killed_launcher_writes_the_rest_and_ends(
    folder, ledger, plan, uri, database, empty_mlflow
):
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(folder.root), uri], stdout=subprocess.PIPE
    )
    pid = int(launcher.stdout.readline())
    launcher.stdout.close()
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    wait_until(lambda: is_gone(pid))
    mlflow_runs = runs(database, plan.name)
    assert mlflow_runs == project_anew(folder, ledger, plan, empty_mlflow)
    assert "RUNNING" not in {run.status for run in mlflow_runs.values()}, (
        "no run may be RUNNING without a launcher"
    )
    assert mlflow_runs["sweep/-/-"].status == "KILLED"


def test_only_one_writer_runs_at_a_time(folder, ledger, uri, monkeypatch):
    monkeypatch.setattr("orchestrator.tracking.sync.LOCK_WAIT_S", 0.1)
    with projection_lock(folder.root, 0.0), pytest.raises(StoreError, match=f"process {os.getpid()} "):
        sync(folder, ledger, uri)


def test_lock_that_is_a_link_is_refused_unchanged(tmp_path):
    target = tmp_path / "precious"
    target.write_text("content")
    (tmp_path / ".tracking.lock").symlink_to(target)
    with pytest.raises(StoreError, match=r"\.tracking\.lock"), projection_lock(tmp_path, 0.0):
        pass
    assert target.read_text() == "content"


def test_unreadable_state_file_is_ignored(folder):
    assert read_state(folder) is None
    (folder.root / "tracking.json").write_text(json.dumps({"else": 1}))
    assert read_state(folder) is None


class TestLoop:
    """The loop with a virtual clock and a store that fails on demand."""

    @pytest.fixture
    def clock(self, monkeypatch):
        now = [0.0]
        monkeypatch.setattr(followers.time, "monotonic", lambda: now[0])
        return now

    def test_loop_waits_longer_after_each_failure_and_recovers(
        self, folder, ledger, plan, uri, clock, monkeypatch
    ):
        append(ledger, history(plan, 1))
        tries: list[float] = []

        class FailingWriter(MlflowWriter):
            def __init__(self, *args: object, **options: object) -> None:
                tries.append(clock[0])
                if len(tries) < 9:
                    raise StoreError("away")
                super().__init__(*args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(followers, "MlflowWriter", FailingWriter)

        def advance_clock(seconds: float) -> bool:
            clock[0] += seconds
            return clock[0] > 600

        assert FollowerLoop(folder, ledger, uri, advance_clock, lambda: True).run()
        waits = [second - first for first, second in pairwise(tries)]
        assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60], abs=0.31)
        wal_file = Path(f"{uri.removeprefix('sqlite:///')}-wal")
        assert not wal_file.exists(), "all writes must be in the database file"

    def test_loop_of_an_orphan_tries_once_and_gives_up(self, folder, ledger, plan, uri, clock, monkeypatch):
        append(ledger, history(plan, 1))
        tries = []

        def fail(*_: object, **__: object) -> MlflowWriter:
            tries.append(clock[0])
            raise StoreError("away")

        monkeypatch.setattr(followers, "MlflowWriter", fail)
        assert not FollowerLoop(folder, ledger, uri, lambda _: False, lambda: False).run()
        assert len(tries) == 1
        assert len(read_records(folder)) == len(plan.trials)

    def test_parquet_failure_does_not_stop_mlflow(self, folder, ledger, plan, uri, database, capfd):
        append(ledger, history(plan, 1))
        folder.measurements.write_text("blocking file")
        assert FollowerLoop(folder, ledger, uri, lambda _: True, lambda: True).run()
        assert str(folder.measurements) in capfd.readouterr().err
        assert len(runs(database, plan.name)) == 1 + len(plan.arms) + len(begun(plan))


def test_drained_follower_writes_the_summary_and_the_report(folder, ledger, plan, uri, database):
    append(ledger, history(plan, 1))
    folder.report.mkdir()
    (folder.report / "report.md").write_text("better")
    long = "x" * 100_000  # more than the buffer of a pipe
    summary = ArmSummary({"arm-0": {"test/accuracy": 0.5}}, {"arm-1": {"verdict": long}})
    assert start_follower(folder, folder.ledger_url, uri).drain(60, summary=summary) is None
    arms = runs(database, plan.name)
    assert arms["arm/arm-0/-"].latest["test/accuracy"] == 0.5
    assert arms["arm/arm-1/-"].tags["haltsweep.verdict"].startswith("xxx")
    assert next(artifact_root(folder).rglob("report.md")).read_text() == "better"
    assert sync(folder, ledger, uri, summary).total == 0


def test_sync_uploads_the_files_of_the_sweep_once(folder, ledger, plan, uri):
    append(ledger, history(plan, 1))
    folder.spec.write_text("name: synthetic")
    (folder.report / "figures").mkdir(parents=True)
    (folder.report / "report.md").write_text("# first")
    (folder.report / "figures" / "a.png").write_bytes(b"png")
    summary = ArmSummary({"arm-0": {"test/accuracy/mean": 0.5}})
    first_counts = sync(folder, ledger, uri, summary)
    assert first_counts.files == 2 + 4 + 2 * len(plan.arms), "every arm must have the report and the figure"
    figures = list(artifact_root(folder).rglob("a.png"))
    assert len(figures) == 1 + len(plan.arms)
    assert {figure.parts[-3:] for figure in figures} == {("report", "figures", "a.png")}
    assert sync(folder, ledger, uri, summary).total == 0
    (folder.report / "report.md").write_text("# second")
    assert sync(folder, ledger, uri, summary).files == 4 + 2 * len(plan.arms)
    assert {file.read_text() for file in artifact_root(folder).rglob("report.md")} == {"# second"}


def test_sync_uploads_no_damaged_file(folder, ledger, plan, uri):
    append(ledger, history(plan, 1))
    folder.provenance.write_text('{"commit": "c0ffee"}')
    write_manifest(folder.root, [folder.plan, folder.provenance])
    folder.provenance.write_text('{"commit": "c0ffef"}')
    with pytest.raises(StoreError, match=r"provenance\.json"):
        sync(folder, ledger, uri)
    assert not list(artifact_root(folder).rglob("provenance.json"))
