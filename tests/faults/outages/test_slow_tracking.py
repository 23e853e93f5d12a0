"""A slow, hanging or dying MLflow and killed writers are reported and bounded in time; `sync` catches up."""

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
from tests.faults.kills.chaos import SweepSite, launch_or_resume
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
    """A finished sweep that is not in MLflow yet."""
    sweep_folder = launched(tmp_path, PLAN)
    with Ledger.open(sweep_folder.ledger_url, PLAN.name) as ledger:
        lease = ledger.claim(Holder.current())
        ledger.append(list(history(PLAN)), lease)
        ledger.release(lease)
    return sweep_folder


def wait_until(condition) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def sync_and_count(folder: SweepFolder, plan: Plan, url: str) -> int:
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        return sync(folder, ledger, url).total


@pytest.mark.slow
def test_remaining_mlflow_runs_are_reported_until_none_remain(tmp_path: Path) -> None:
    messages: list[str] = []
    with slow_mlflow(tmp_path / "artifacts", delay_s=0.2) as mlflow:
        place = SweepSite(tmp_path, PLAN, mlflow.url)
        finish = launch_or_resume(place, watch=Listeners(on_tracking=messages.append))
        assert finish.untracked == ""
        assert len(mlflow.runs) == RUNS
    remaining_runs = [
        int(match[1]) for text in messages if (match := re.match(r"(\d+) runs? to write \(asked", text))
    ]
    assert remaining_runs, messages
    # The count rises when trials end during the writes, so only the writes after the last trial count down.
    assert max(remaining_runs) <= RUNS
    assert remaining_runs[-1] == min(remaining_runs)
    assert any("to go" in text for text in messages)
    state = read_state(place.folder)
    assert state is not None
    assert (state.position, state.error, state.doing) == (len(place.events()), "", "")


@pytest.fixture
def detached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[SweepSite, SweepResult, SlowMlflow]]:
    """A session that has ended, while MLflow does not answer."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(open_sweep, "DRAIN_S", 0.5)
    with slow_mlflow(tmp_path / "artifacts") as mlflow:
        mlflow.hangs = True
        place = SweepSite(tmp_path, PLAN, mlflow.url)
        finish = launch_or_resume(place)
        yield place, finish, mlflow
        if finish.tracking_pid is not None:
            with suppress(ProcessLookupError):
                os.kill(finish.tracking_pid, signal.SIGKILL)


def is_gone(pid: int | None) -> bool:
    return pid is None or not psutil.pid_exists(pid)


@pytest.mark.slow
def test_session_leaves_a_slow_mlflow_to_a_background_process(
    detached: tuple[SweepSite, SweepResult, SlowMlflow], haltsweep: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, finish, mlflow = detached
    assert len(mlflow.asked) <= 1, "the session may wait for at most one request"
    assert finish.exit_code == 0
    assert finish.untracked
    assert not is_gone(finish.tracking_pid)
    wait_until(lambda: is_writing(place.folder))
    status = haltsweep("status", str(place.folder.root))
    assert "a background process writes it" in status.out
    assert "catch up with" not in status.out
    monkeypatch.setattr(syncing, "LOCK_WAIT_S", 0.1)
    refused_command = haltsweep("sync", str(place.folder.root))
    assert refused_command.code == 1
    assert f"process {finish.tracking_pid} on " in refused_command.err, "only one process may write"

    mlflow.hangs = False
    wait_until(lambda: is_gone(finish.tracking_pid))
    assert mlflow.asked.count("runs/create") == len(mlflow.runs) == RUNS
    assert len(read_records(place.folder)) == len(PLAN.trials)
    assert "MLflow: has everything" in haltsweep("status", str(place.folder.root)).out
    with Ledger.open(place.folder.ledger_url, PLAN.name) as ledger:
        changes = sync(place.folder, ledger, mlflow.url)
    assert (changes.runs, changes.points, changes.params, changes.endings) == (0, 0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("failure", ["the process", "MLflow"])
def test_sync_writes_the_remainder_of_a_background_process(
    detached: tuple[SweepSite, SweepResult, SlowMlflow],
    haltsweep: Run,
    monkeypatch: pytest.MonkeyPatch,
    failure: str,
) -> None:
    place, finish, mlflow = detached
    assert finish.tracking_pid is not None
    if failure == "MLflow":
        wait_until(lambda: mlflow.asked)
        mlflow.dies_after = 4
        mlflow.hangs = False
    else:
        os.kill(finish.tracking_pid, signal.SIGKILL)
    wait_until(lambda: is_gone(finish.tracking_pid))
    status = haltsweep("status", str(place.folder.root))
    assert "a background process" not in status.out
    assert "catch up with: haltsweep sync" in status.out
    mlflow.hangs, mlflow.dies_after = False, None
    assert sync_and_count(place.folder, PLAN, mlflow.url) > 0
    assert len(mlflow.runs) == RUNS
    assert sync_and_count(place.folder, PLAN, mlflow.url) == 0


@pytest.mark.slow
def test_ctrl_c_leaves_a_slow_mlflow_for_sync(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path, tracked=True)
    with slow_mlflow(tmp_path / "artifacts") as mlflow:
        arguments = ("launch", "tiny.yaml", "--profile", "short", "--driver", "inline")
        with shell.started(*arguments, "--tracking", mlflow.url) as process:
            wait_for(lambda: len(mlflow.asked) > 3, process)
            mlflow.delay_s = 20.0
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if "waiting for MLflow" in line:
                    break
            assert "Ctrl-C leaves it for `haltsweep sync`" in lines[-1], lines
            interrupt(process)
            result = answer(process)
        assert result.code == 0, result
        assert "MLflow or the Parquet files lack something: left at Ctrl-C: " in result.err
        assert "catch up with: haltsweep sync tiny" in result.err
        assert "Traceback" not in result.err + result.out
        tracking = json.loads(shell.run("status", "tiny", "--json").out)["tracking"]
        assert tracking["behind"] > 0
        assert tracking["store"] == mlflow.url
        assert "behind; " in shell.run("status", "tiny").out
        mlflow.delay_s = 0.0
        assert "written" in shell.run("sync", "tiny").out, (
            "sync must use the MLflow of the launch without an option"
        )
        assert json.loads(shell.run("status", "tiny", "--json").out)["tracking"]["behind"] == 0
        assert f"MLflow: has everything ({mlflow.url})" in shell.run("status", "tiny").out


def test_sync_reports_its_wait_before_heavy_imports(
    folder: SweepFolder, haltsweep: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    has_message = threading.Event()

    def record_message(text: str) -> None:
        messages.append(text)
        has_message.set()

    class SlowModule:
        """Replaces the module that follows heavy imports; its import takes until a message is printed."""

        def __getattr__(self, name: str) -> object:
            has_message.wait(PATIENCE_S)
            raise KeyboardInterrupt

    monkeypatch.setattr(waiting, "print_error", record_message)
    monkeypatch.setitem(sys.modules, "orchestrator.cli.stored_sweep", SlowModule())
    answer_ = haltsweep("sync", str(folder.root), "--tracking", "http://127.0.0.1:1/?token=marker")
    assert answer_.code == 130
    assert messages, "sync must report its wait"
    assert messages[0].startswith("sync: loading haltsweep")
    assert "; Ctrl-C leaves it for `haltsweep sync synthetic" in messages[0]
    assert "; it is at http://127.0.0.1:1/?token=" in messages[0]
    assert "marker" not in messages[0]


def test_mlflow_error_omits_the_token_of_its_url(
    folder: SweepFolder, haltsweep: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The HTTP library below MLflow quotes path and query."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    answer_ = haltsweep("sync", str(folder.root), "--tracking", "http://127.0.0.1:1/?token=marker")
    assert answer_.code == 1
    assert "exceeded with url: /?token=***" in answer_.err
    assert "marker" not in answer_.err + answer_.out


@pytest.mark.slow
def test_hanging_mlflow_is_given_up_and_reported(
    folder: SweepFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    messages: list[str] = []
    with slow_mlflow(tmp_path / "artifacts") as mlflow:
        mlflow.hangs = True
        follower = start_follower(folder, folder.ledger_url, mlflow.url)
        state = follower.drain(PATIENCE_S, outage_s=0.0, on_wait=messages.append)
        assert state is not None
        assert f"MLflow at {mlflow.url} failed" in state.error
        assert "looking up what is in MLflow (asked" in " ".join(messages)
        mlflow.hangs = False
        assert sync_and_count(folder, PLAN, mlflow.url) > 0
        assert len(mlflow.runs) == RUNS


@pytest.mark.slow
@pytest.mark.parametrize("request_count", [3, 8])
def test_mlflow_that_dies_half_way_is_reported_and_sync_catches_up(
    folder: SweepFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_count: int
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with slow_mlflow(tmp_path / "artifacts", dies_after=request_count) as mlflow:
        follower = start_follower(folder, folder.ledger_url, mlflow.url)
        state = follower.drain(PATIENCE_S, outage_s=0.0)
        assert state is not None
        assert "failed" in state.error
        assert state.newest > state.position
        mlflow.dies_after = None
        assert sync_and_count(folder, PLAN, mlflow.url) > 0
        assert len(mlflow.runs) == RUNS
        assert sync_and_count(folder, PLAN, mlflow.url) == 0


@pytest.mark.slow
def test_killed_writer_is_reported_and_sync_catches_up(folder: SweepFolder, tmp_path: Path) -> None:
    with slow_mlflow(tmp_path / "artifacts") as mlflow:
        follower = start_follower(folder, folder.ledger_url, mlflow.url)
        os.kill(follower.pid, signal.SIGKILL)
        state = follower.drain(PATIENCE_S)
        assert state is not None
        assert LOG in state.error
        sync_and_count(folder, PLAN, mlflow.url)
        assert len(mlflow.runs) == RUNS


def test_damaged_state_file_is_ignored(folder: SweepFolder) -> None:
    write_state(folder, TrackingState(3, "", 5.0))
    file = folder.root / "tracking.json"
    assert read_state(folder) == TrackingState(3, "", 5.0)
    file.write_text(file.read_text().replace("3", "4"))
    assert read_state(folder) is None
