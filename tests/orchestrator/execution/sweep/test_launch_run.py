"""A sweep from launch to finish: its result, its files and refused launches. Crashes are in tests/faults."""

import os
import signal
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest

from orchestrator.errors import InputError, LeaseLost, StoreError
from orchestrator.execution.live_view import Listeners
from orchestrator.execution.sweep import launch
from orchestrator.execution.sweep.launch import Setup, resume_sweep, run_sweep
from orchestrator.execution.sweep.open_sweep import SweepResult
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.lease import Holder, LeaseHeldError
from orchestrator.ledger.store import Ledger
from orchestrator.trials import OutcomeKind
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.workloads import PATH

SPEC = "name: synthetic\n"


@pytest.fixture
def folder(tmp_path):
    return SweepFolder(tmp_path / "runs" / "synthetic")


@pytest.fixture
def setup(tmp_path):
    return Setup(tmp_path / "data", PATH)


def small_plan(**options):
    return make_plan(1, trials_per_arm=2, seeds=(7,), **options)


def read_events(folder):
    with Ledger.open(folder.ledger_url, folder.name) as ledger:
        return list(ledger.events())


def launch_sweep(folder, setup, plan=None, **options):
    return run_sweep(plan or small_plan(), folder, setup, SPEC, driver="inline", **options)


def test_sweep_runs_to_its_end_and_releases_the_lease(folder, setup):
    snapshots = []
    finish = launch_sweep(folder, setup, watch=Listeners(on_change=snapshots.append))
    assert finish == SweepResult(Counter({OutcomeKind.FINISHED: 3}), 0, interrupted=False, untracked="")
    assert finish.exit_code == 0
    all_events = read_events(folder)
    assert all_events[0].kind is EventKind.OPENED
    assert all_events[0].payload["provenance"]["python"]
    assert (all_events[-1].kind, all_events[-1].payload) == (EventKind.CLOSED, {"reason": "done"})
    assert [sum(arm.ended for arm in snapshots[index].arms) for index in (0, -1)] == [0, 3]
    with Ledger.open(folder.ledger_url, folder.name) as ledger:
        assert ledger.lease() is None
        ledger.claim(Holder.current())
        with pytest.raises(LeaseHeldError):
            resume_sweep(folder, driver="inline")
    assert not [thread for thread in threading.enumerate() if thread.name == "haltsweep-heartbeat"]


def test_search_without_a_winner_sets_the_exit_code(folder, setup):
    plan = make_plan([make_arm("one", fault="raise"), make_arm("two")], trials_per_arm=2, seeds=())
    assert launch_sweep(folder, setup, plan).exit_code == 1


@pytest.mark.parametrize(
    ("finish", "code"),
    [
        (SweepResult({OutcomeKind.DIVERGED: 1}, 0, interrupted=False, untracked="away"), 0),
        (SweepResult({OutcomeKind.DIVERGED: 1}, 0, interrupted=False, untracked="", unanswered=1), 1),
        (SweepResult({OutcomeKind.FINISHED: 1}, 2, interrupted=False, untracked=""), 1),
        (SweepResult({OutcomeKind.CRASHED: 1}, 2, interrupted=True, untracked=""), 130),
    ],
)
def test_exit_codes(finish, code):
    assert finish.exit_code == code


def interrupt_after(monkeypatch, num_changes, times=1):
    """Interrupt this process after `num_changes` recorded changes."""
    original = launch.run_inline

    def run_inline(*arguments, on_change, **options):
        count = 0

        def count_change():
            nonlocal count
            count += 1
            if count == num_changes:
                for _ in range(times):
                    os.kill(os.getpid(), signal.SIGINT)
            on_change()

        original(*arguments, on_change=count_change, **options)

    monkeypatch.setattr(launch, "run_inline", run_inline)


def test_interrupted_sweep_resumes_to_the_same_end(folder, setup, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_after(patch, num_changes=5)
        finish = launch_sweep(folder, setup)
    assert (finish.interrupted, finish.exit_code) == (True, 130)
    assert finish.left == 3 - finish.counts[OutcomeKind.FINISHED] > 0
    assert read_events(folder)[-1].payload == {"reason": "interrupted"}
    finish = resume_sweep(folder, driver="inline")
    assert finish == SweepResult(Counter({OutcomeKind.FINISHED: 3}), 0, interrupted=False, untracked="")


def test_second_interrupt_ends_the_session_in_order(folder, setup, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_after(patch, num_changes=5, times=2)
        finish = launch_sweep(folder, setup)
    assert (finish.interrupted, finish.exit_code) == (True, 130)
    assert read_events(folder)[-1].kind is EventKind.CLOSED
    with Ledger.open(folder.ledger_url, folder.name) as ledger:
        assert ledger.lease() is None
    assert resume_sweep(folder, driver="inline").counts == {OutcomeKind.FINISHED: 3}


def test_spent_budget_ends_a_sweep_without_an_interrupt(folder, setup):
    finish = launch_sweep(folder, setup, small_plan(wall_clock_hours=0.0))
    assert (finish.left, finish.interrupted, finish.exit_code) == (3, False, 1)
    assert read_events(folder)[-1].payload == {"reason": "budget", "why": finish.spent, "extensions": 0}


def test_unusable_setup_is_refused_before_files_are_written(folder, setup):
    with pytest.raises(InputError, match="'mlruns'"):
        launch_sweep(folder, replace(setup, tracking_uri="mlruns"))
    assert not folder.root.exists()


def test_session_without_its_lease_stops_and_writes_nothing(folder, setup, monkeypatch):
    original = launch.run_inline

    def run_inline(recorder, *arguments, **options):
        with Ledger.open(folder.ledger_url, folder.name) as other_ledger:
            thief = replace(Holder.current(), pid=1, host="elsewhere")
            other_ledger.claim(thief, on_fenced=lambda _: None)
        original(recorder, *arguments, **options)

    monkeypatch.setattr(launch, "run_inline", run_inline)
    with pytest.raises(LeaseLost, match=r"process 1 .*'elsewhere'"):
        launch_sweep(folder, setup)
    assert [event.kind for event in read_events(folder)] == [EventKind.OPENED]


def test_lost_ledger_is_not_recreated(folder, setup):
    launch_sweep(folder, setup)
    os.truncate(folder.ledger, 0)
    with pytest.raises(StoreError, match=str(folder.ledger)):
        resume_sweep(folder, driver="inline")
    assert not folder.ledger.read_bytes()
    folder.ledger.unlink()
    with pytest.raises(StoreError, match=str(folder.ledger)):
        resume_sweep(folder, driver="inline")
    assert not folder.ledger.exists()


@pytest.mark.parametrize("has_ledger", [False, True])
def test_resume_starts_a_sweep_that_was_killed_before_its_first_event(folder, setup, has_ledger):
    launch.create_sweep_folder(small_plan(), folder, SPEC, {}, setup)
    if has_ledger:
        with closing(sqlite3.connect(folder.ledger)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    assert resume_sweep(folder, driver="inline").counts == {OutcomeKind.FINISHED: 3}
