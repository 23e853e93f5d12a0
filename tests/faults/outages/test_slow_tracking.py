"""A session does not wait for a hanging MLflow, and errors of MLflow omit secrets."""

import json
import os
import signal
import time
from contextlib import suppress

import psutil
import pytest

from orchestrator.execution.sweep import open_sweep
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.tracking import sync as syncing
from orchestrator.tracking.state import is_writing
from orchestrator.tracking.sync import sync
from tests.faults.kills.chaos import KillableSweep, launch_or_resume
from tests.support.mlflow.slow_mlflow import slow_mlflow
from tests.support.specs.plans import make_plan
from tests.support.stores.parquet_records import read_records
from tests.support.sweeps.histories import history
from tests.support.sweeps.launched import launched

PATIENCE_S = 120.0
PLAN = make_plan(1, trials_per_arm=2, seeds=(7,))
RUNS = 1 + len(PLAN.arms) + len(PLAN.trials)


@pytest.fixture
def folder(tmp_path):
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


@pytest.fixture
def detached(tmp_path, monkeypatch):
    """A session that has ended, while MLflow does not answer."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(open_sweep, "MLFLOW_WAIT_S", 0.5)
    with slow_mlflow(tmp_path / "artifacts") as mlflow:
        mlflow.hangs = True
        sweep = KillableSweep(tmp_path, PLAN, mlflow.url)
        finish = launch_or_resume(sweep)
        yield sweep, finish, mlflow
        if finish.tracking_pid is not None:
            with suppress(ProcessLookupError):
                os.kill(finish.tracking_pid, signal.SIGKILL)


def tracking_status(haltsweep, sweep) -> dict[str, object]:  # type: ignore[no-untyped-def]
    return json.loads(haltsweep("status", str(sweep.folder.root), "--json").out)["tracking"]


def is_gone(pid: int | None) -> bool:
    return pid is None or not psutil.pid_exists(pid)


@pytest.mark.slow
def test_session_leaves_a_slow_mlflow_to_a_background_process(detached, haltsweep, monkeypatch):
    sweep, finish, mlflow = detached
    assert len(mlflow.asked) <= 1, "the session may wait for at most one request"
    assert finish.exit_code == 0
    assert finish.untracked
    assert not is_gone(finish.tracking_pid)
    wait_until(lambda: is_writing(sweep.folder))
    assert tracking_status(haltsweep, sweep)["active"]
    assert "haltsweep sync" not in haltsweep("status", str(sweep.folder.root)).out
    monkeypatch.setattr(syncing, "LOCK_WAIT_S", 0.1)
    refused_command = haltsweep("sync", str(sweep.folder.root))
    assert refused_command.code == 1
    assert f"process {finish.tracking_pid} on " in refused_command.err, "only one process may write"

    mlflow.hangs = False
    wait_until(lambda: is_gone(finish.tracking_pid))
    assert mlflow.asked.count("runs/create") == len(mlflow.runs) == RUNS
    assert len(read_records(sweep.folder)) == len(PLAN.trials)
    assert tracking_status(haltsweep, sweep)["behind"] == 0
    with Ledger.open(sweep.folder.ledger_url, PLAN.name) as ledger:
        changes = sync(sweep.folder, ledger, mlflow.url)
    assert (changes.runs, changes.points, changes.params, changes.endings) == (0, 0, 0, 0)


def test_mlflow_error_omits_the_token_of_its_url(folder, haltsweep, monkeypatch):
    """The HTTP library below MLflow quotes path and query."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    answer_ = haltsweep("sync", str(folder.root), "--tracking", "http://127.0.0.1:1/?token=marker")
    assert answer_.code == 1
    assert "/?token=***" in answer_.err
    assert "marker" not in answer_.err + answer_.out
