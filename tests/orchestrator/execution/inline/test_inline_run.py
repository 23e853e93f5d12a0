"""What the in-process driver does of its own: stop at once, save what will go on, and nothing else."""

import threading

import pytest

from orchestrator.execution.inline import INTERRUPTED, run_inline
from orchestrator.ledger.events import EventKind
from orchestrator.trials import OutcomeKind
from tests.support.processes.logs import MemoryLog, record
from tests.support.specs.plans import make_plan
from tests.support.sweeps.workloads import PATH

SELDOM = 1e6


def written(log):
    """Steps at which checkpoints were written."""
    return [each.payload["step"] for each in log.of(EventKind.CHECKPOINTED)]


def run(tmp_path, log, plan, **keywords):
    recorder = record(plan, log, root=tmp_path)
    run_inline(recorder, PATH, data_dir=tmp_path / "data", checkpoint_seconds=SELDOM, **keywords)
    return recorder


def test_a_stop_ends_the_running_trial_at_its_next_report(tmp_path):
    stop, log = threading.Event(), MemoryLog()

    def changed():
        if len(log.of(EventKind.MEASURED)) == 2:
            stop.set()

    recorder = run(tmp_path, log, make_plan(1), stop=stop, on_change=changed)
    assert recorder.draining == INTERRUPTED
    (ended,) = log.of(EventKind.ENDED)
    assert ended.payload == {"kind": OutcomeKind.STOPPED, "reason": INTERRUPTED}
    assert len(log.of(EventKind.MEASURED)) == 3
    assert written(log) == [3]


def test_a_stop_before_anything_runs_starts_nothing(tmp_path):
    stop, log = threading.Event(), MemoryLog()
    stop.set()
    run(tmp_path, log, make_plan(1), stop=stop)
    assert [each.kind for each in log.written] == [EventKind.OPENED]


def test_a_trial_that_was_pruned_is_not_saved(tmp_path):
    log = MemoryLog()
    stopper = {"name": "asha", "grace_steps": 1, "reduction": 2}
    run(tmp_path, log, make_plan(1, trials_per_arm=6, seeds=(), stopper=stopper))
    kinds = list(log.outcomes().values())
    assert OutcomeKind.PRUNED in kinds
    assert written(log) == [4] * kinds.count(OutcomeKind.FINISHED)


def test_a_second_interrupt_goes_through_and_leaves_the_trial_to_be_resumed(tmp_path):
    log, plan = MemoryLog(), make_plan(1, trials_per_arm=1, seeds=())

    def changed():
        if log.of(EventKind.MEASURED):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, log, plan, on_change=changed)
    assert log.outcomes() == {}
    assert run(tmp_path, log, plan).finished


def test_a_budget_that_is_used_up_ends_the_run_quietly(tmp_path):
    log = MemoryLog()
    recorder = run(tmp_path, log, make_plan(1, wall_clock_hours=0.0))
    assert "budget of 0 hours" in recorder.draining
    assert log.of(EventKind.STARTED) == []
