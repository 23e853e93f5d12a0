"""The inline driver stops at once and writes checkpoints only of trials that will continue."""

import threading

import pytest

from orchestrator.execution.inline import INTERRUPTED, run_inline
from orchestrator.ledger.events import EventKind
from orchestrator.trials import OutcomeKind
from tests.support.processes.logs import MemoryLog, record
from tests.support.specs.plans import make_plan
from tests.support.sweeps.workloads import PATH

RARE_CHECKPOINT_S = 1e6


def checkpoint_steps(log):
    """Return the steps at which checkpoints were written."""
    return [event.payload["step"] for event in log.of(EventKind.CHECKPOINTED)]


def run_sweep(tmp_path, log, plan, **options):
    recorder = record(plan, log, root=tmp_path)
    run_inline(recorder, PATH, data_dir=tmp_path / "data", checkpoint_seconds=RARE_CHECKPOINT_S, **options)
    return recorder


def test_stop_ends_the_running_trial_at_its_next_report(tmp_path):
    stop, log = threading.Event(), MemoryLog()

    def stop_after_two_steps():
        if len(log.of(EventKind.MEASURED)) == 2:
            stop.set()

    recorder = run_sweep(tmp_path, log, make_plan(1), stop=stop, on_change=stop_after_two_steps)
    assert recorder.draining == INTERRUPTED
    (end,) = log.of(EventKind.ENDED)
    assert end.payload == {"kind": OutcomeKind.STOPPED, "reason": INTERRUPTED}
    assert len(log.of(EventKind.MEASURED)) == 3
    assert checkpoint_steps(log) == [3]


def test_stop_before_the_first_trial_starts_nothing(tmp_path):
    stop, log = threading.Event(), MemoryLog()
    stop.set()
    run_sweep(tmp_path, log, make_plan(1), stop=stop)
    assert [event.kind for event in log.written] == [EventKind.OPENED]


def test_pruned_trial_writes_no_checkpoint(tmp_path):
    log = MemoryLog()
    stopper = {"name": "asha", "grace_steps": 1, "reduction": 2}
    run_sweep(tmp_path, log, make_plan(1, trials_per_arm=6, seeds=(), stopper=stopper))
    kinds = list(log.outcomes().values())
    assert OutcomeKind.PRUNED in kinds
    assert checkpoint_steps(log) == [4] * kinds.count(OutcomeKind.FINISHED)


def test_second_interrupt_is_raised_and_the_trial_can_be_resumed(tmp_path):
    log, plan = MemoryLog(), make_plan(1, trials_per_arm=1, seeds=())

    def interrupt_after_a_step():
        if log.of(EventKind.MEASURED):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(tmp_path, log, plan, on_change=interrupt_after_a_step)
    assert log.outcomes() == {}
    assert run_sweep(tmp_path, log, plan).finished


def test_spent_budget_ends_the_run_without_an_error(tmp_path):
    log = MemoryLog()
    recorder = run_sweep(tmp_path, log, make_plan(1, wall_clock_hours=0.0))
    assert "budget of 0 hours" in recorder.draining
    assert log.of(EventKind.STARTED) == []
