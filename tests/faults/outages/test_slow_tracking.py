"""MLflow that is slow, hangs or dies half-way, writers that are killed: told, bounded, left for `sync`."""

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from orchestrator.cli.display import wait_display as waiting
from orchestrator.execution.live_view import Listeners
from orchestrator.execution.sweep import open_sweep
from orchestrator.execution.sweep.open_sweep import SweepResult
from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.tracking import sync as syncing
from orchestrator.tracking.background import LOG, start_follower
from orchestrator.tracking.parquet import read_records
from orchestrator.tracking.state import TrackingState, is_writing, read_state, write_state
from orchestrator.tracking.sync import sync
from tests.faults.kills.chaos import Place, go
from tests.support.mlflow.slow_mlflow import SlowMlflow, slow_mlflow
from tests.support.processes.commands import Shell, answer, interrupt, wait_for
from tests.support.processes.in_process import Run
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import history
from tests.support.sweeps.launched import launched

PATIENCE_S = 120.0
PLAN = make_plan(1, trials_per_arm=2, seeds=(7,))
RUNS = 1 + len(PLAN.arms) + len(PLAN.trials)


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    """A sweep that has ended, with MLflow still to be written."""
    found = launched(tmp_path, PLAN)
    with Ledger.open(found.ledger_url, PLAN.name) as ledger:
        lease = ledger.claim(Holder.current())
        ledger.append(list(history(PLAN)), lease)
        ledger.release(lease)
    return found


def until(condition) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def synced(folder: SweepFolder, plan: Plan, url: str) -> int:
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        return sync(folder, ledger, url).total


@pytest.mark.slow
def test_what_a_slow_mlflow_still_lacks_is_told_until_it_has_everything(tmp_path: Path) -> None:
    shown: list[str] = []
    with slow_mlflow(tmp_path / "artifacts", delay_s=0.2) as mlflow:
        place = Place(tmp_path, PLAN, mlflow.url)
        finish = go(place, watch=Listeners(on_tracking=shown.append))
        assert finish.untracked == ""
        assert len(mlflow.runs) == RUNS
    left = [int(found[1]) for text in shown if (found := re.match(r"(\d+) runs? to write \(asked", text))]
    assert left, shown
    assert left == sorted(left, reverse=True)
    assert any("to go" in text for text in shown)
    state = read_state(place.folder)
    assert state is not None
    assert (state.position, state.error, state.doing) == (len(place.events()), "", "")


@pytest.fixture
def detached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Place, SweepResult, SlowMlflow]]:
    """A session that has ended, while MLflow does not answer."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(open_sweep, "DRAIN_S", 0.5)
    with slow_mlflow(tmp_path / "artifacts") as mlflow:
        mlflow.hangs = True
        place = Place(tmp_path, PLAN, mlflow.url)
        finish = go(place)
        yield place, finish, mlflow
        if finish.tracking_pid is not None:
            with suppress(ProcessLookupError):
                os.kill(finish.tracking_pid, signal.SIGKILL)


def gone(pid: int | None) -> bool:
    return pid is None or not psutil.pid_exists(pid)


@pytest.mark.slow
def test_a_session_leaves_a_slow_mlflow_to_a_process_in_the_background(
    detached: tuple[Place, SweepResult, SlowMlflow], haltsweep: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, finish, mlflow = detached
    assert len(mlflow.asked) <= 1, "of all requests that follow, the session waits for one at most"
    assert finish.exit_code == 0
    assert finish.untracked
    assert not gone(finish.tracking_pid)
    until(lambda: is_writing(place.folder))
    told = haltsweep("status", str(place.folder.root))
    assert "a background process writes it" in told.out
    assert "catch up with" not in told.out
    monkeypatch.setattr(syncing, "LOCK_WAIT_S", 0.1)
    refused = haltsweep("sync", str(place.folder.root))
    assert refused.code == 1
    assert f"process {finish.tracking_pid} on " in refused.err, "one writer at a time"

    mlflow.hangs = False
    until(lambda: gone(finish.tracking_pid))
    assert mlflow.asked.count("runs/create") == len(mlflow.runs) == RUNS
    assert len(read_records(place.folder)) == len(PLAN.trials)
    assert "MLflow: has everything" in haltsweep("status", str(place.folder.root)).out
    with Ledger.open(place.folder.ledger_url, PLAN.name) as ledger:
        more = sync(place.folder, ledger, mlflow.url)
    assert (more.runs, more.points, more.params, more.endings) == (0, 0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["the process", "MLflow"])
def test_what_a_process_in_the_background_has_not_written_is_written_by_sync(
    detached: tuple[Place, SweepResult, SlowMlflow],
    haltsweep: Run,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
) -> None:
    place, finish, mlflow = detached
    assert finish.tracking_pid is not None
    if end == "MLflow":
        until(lambda: mlflow.asked)
        mlflow.dies_after = 4
        mlflow.hangs = False
    else:
        os.kill(finish.tracking_pid, signal.SIGKILL)
    until(lambda: gone(finish.tracking_pid))
    told = haltsweep("status", str(place.folder.root))
    assert "a background process" not in told.out
    assert "catch up with: haltsweep sync" in told.out
    mlflow.hangs, mlflow.dies_after = False, None
    assert synced(place.folder, PLAN, mlflow.url) > 0
    assert len(mlflow.runs) == RUNS
    assert synced(place.folder, PLAN, mlflow.url) == 0


@pytest.mark.slow
def test_ctrl_c_leaves_a_slow_mlflow_for_sync_and_the_exit_code_as_it_was(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path, tracked=True)
    with slow_mlflow(tmp_path / "artifacts") as mlflow:
        arguments = ("launch", "tiny.yaml", "--profile", "short", "--driver", "inline")
        with shell.started(*arguments, "--tracking", mlflow.url) as process:
            wait_for(lambda: len(mlflow.asked) > 3, process)
            mlflow.delay_s = 20.0
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if "waiting for MLflow" in line:
                    break
            assert "Ctrl-C leaves it for `haltsweep sync`" in said[-1], said
            interrupt(process)
            end = answer(process)
        assert end.code == 0, end
        assert "MLflow or the Parquet files lack something: left at Ctrl-C: " in end.err
        assert "catch up with: haltsweep sync tiny" in end.err
        assert "Traceback" not in end.err + end.out
        behind = json.loads(shell.run("status", "tiny", "--json").out)["tracking"]
        assert behind["behind"] > 0
        assert behind["store"] == mlflow.url
        assert "behind; " in shell.run("status", "tiny").out
        mlflow.delay_s = 0.0
        assert "written" in shell.run("sync", "tiny").out, "to the MLflow of the launch, without being told"
        assert json.loads(shell.run("status", "tiny", "--json").out)["tracking"]["behind"] == 0
        assert f"MLflow: has everything ({mlflow.url})" in shell.run("status", "tiny").out


def test_sync_says_what_it_waits_for_before_it_imports_anything_heavy(
    folder: SweepFolder, haltsweep: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    first = threading.Event()

    def complain(text: str) -> None:
        said.append(text)
        first.set()

    class Reading:
        """In place of the module that everything heavy is imported after; it takes until a line is there."""

        def __getattr__(self, name: str) -> object:
            first.wait(PATIENCE_S)
            raise KeyboardInterrupt

    monkeypatch.setattr(waiting, "print_error", complain)
    monkeypatch.setitem(sys.modules, "orchestrator.cli.stored_sweep", Reading())
    done = haltsweep("sync", str(folder.root), "--tracking", "http://127.0.0.1:1/?token=marker")
    assert done.code == 130
    assert said, "nothing was told"
    assert said[0].startswith("waiting for MLflow: writing report and Parquet files first")
    assert "; Ctrl-C leaves it for `haltsweep sync synthetic" in said[0]
    assert "; it is at http://127.0.0.1:1/?token=" in said[0]
    assert "marker" not in said[0]


def test_what_mlflow_says_of_a_url_with_a_token_holds_no_token(
    folder: SweepFolder, haltsweep: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library below it quotes path and query alone."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    done = haltsweep("sync", str(folder.root), "--tracking", "http://127.0.0.1:1/?token=marker")
    assert done.code == 1
    assert "exceeded with url: /?token=***" in done.err
    assert "marker" not in done.err + done.out


@pytest.mark.slow
def test_an_mlflow_that_hangs_is_given_up_and_told(
    folder: SweepFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    shown: list[str] = []
    with slow_mlflow(tmp_path / "artifacts") as mlflow:
        mlflow.hangs = True
        follower = start_follower(folder, folder.ledger_url, mlflow.url)
        state = follower.drain(PATIENCE_S, outage_s=0.0, waiting=shown.append)
        assert state is not None
        assert f"MLflow at {mlflow.url} failed" in state.error
        assert "looking up what is in MLflow (asked" in " ".join(shown)
        mlflow.hangs = False
        assert synced(folder, PLAN, mlflow.url) > 0
        assert len(mlflow.runs) == RUNS


@pytest.mark.slow
@pytest.mark.parametrize("after", [3, 8])
def test_an_mlflow_that_dies_half_way_is_told_and_caught_up_with(
    folder: SweepFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with slow_mlflow(tmp_path / "artifacts", dies_after=after) as mlflow:
        follower = start_follower(folder, folder.ledger_url, mlflow.url)
        state = follower.drain(PATIENCE_S, outage_s=0.0)
        assert state is not None
        assert "failed" in state.error
        assert state.newest > state.position
        mlflow.dies_after = None
        assert synced(folder, PLAN, mlflow.url) > 0
        assert len(mlflow.runs) == RUNS
        assert synced(folder, PLAN, mlflow.url) == 0


@pytest.mark.slow
def test_a_killed_writer_is_reported_and_a_sync_catches_up(folder: SweepFolder, tmp_path: Path) -> None:
    with slow_mlflow(tmp_path / "artifacts") as mlflow:
        follower = start_follower(folder, folder.ledger_url, mlflow.url)
        os.kill(follower.pid, signal.SIGKILL)
        state = follower.drain(PATIENCE_S)
        assert state is not None
        assert LOG in state.error
        synced(folder, PLAN, mlflow.url)
        assert len(mlflow.runs) == RUNS


def test_a_damaged_note_is_no_note(folder: SweepFolder) -> None:
    write_state(folder, TrackingState(3, "", 5.0))
    file = folder.root / "tracking.json"
    assert read_state(folder) == TrackingState(3, "", 5.0)
    file.write_text(file.read_text().replace("3", "4"))
    assert read_state(folder) is None
