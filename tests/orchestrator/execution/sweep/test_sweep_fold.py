"""A snapshot restores the same state as a fold of all events."""

import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.conductor.retrying import choose_retries
from orchestrator.execution.sweep.sweep_fold import SweepFold
from orchestrator.ledger.fold import records
from orchestrator.plan.types import AnswerPlan, ArmLimits, Limits
from orchestrator.spec.section import Objective
from orchestrator.trials import DeathCause
from search_spaces.paths import with_values
from tests.support.processes.logs import MemoryLog, content, record
from tests.support.specs.examples import examples
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.driving import Worker, run_in_turn
from tests.support.sweeps.repeated import repeated_plan


def make_phases_plan(sampler="random"):
    """Make a plan with every phase and arms whose trials diverge, crash, are infeasible or finish."""
    arms = [
        make_arm("sound"),
        make_arm("weak", fault="diverge", fault_at=4),
        make_arm("narrow", fault="infeasible", most_x=0.6),
        make_arm("hopeless", fault="raise", fault_at=3),
    ]
    objectives = (Objective(metric="valid/score", goal="max", scope="mean-of-last-2"),)
    return make_plan(
        arms, trials_per_arm=4, sampler=sampler, objectives=objectives, posthoc=({"model.shift": 0.5},)
    )


def make_repeats_plan(sampler="random"):
    """Make a plan with repeated searches that may end early, a control, and repeats that a look may skip."""
    limits = Limits(each_arm=ArmLimits(no_improvement=1))
    answer = AnswerPlan(("valid/score",), None, 0.05, 2)
    plan = repeated_plan(
        4,
        others=2,
        controls=1,
        sampler=sampler,
        limits=limits,
        answer=answer,
        posthoc=({"model.shift": 0.5},),
    )
    shifted = replace(plan.arms[1], settings=with_values(plan.arms[1].settings, {"model.shift": 0.4}))
    return replace(plan, arms=(plan.arms[0], shifted, *plan.arms[2:]))


def fold_events(plan, events):
    fold = SweepFold(plan)
    for event in events:
        fold.apply(event)
    return fold


@pytest.mark.parametrize("make", [make_phases_plan, make_repeats_plan])
def test_restored_state_equals_the_fold_after_any_event(make):
    plan, log = make(), MemoryLog()
    run_in_turn(record(plan, log))
    for cut in range(0, len(log.written), len(log.written) // 25):
        prefix_fold = fold_events(plan, log.written[:cut])
        restored_fold = SweepFold.restore(plan, cut, prefix_fold.content())
        assert restored_fold is not None
        assert restored_fold.content() == prefix_fold.content()
        for event in log.written[cut:]:
            restored_fold.apply(event)
        assert restored_fold.content() == fold_events(plan, log.written).content()


class SnapshotSession:
    """The newest session of a sweep, with or without snapshots, and its workers."""

    def __init__(self, plan, *, has_snapshots):
        self.plan, self.log = plan, MemoryLog()
        self._every = 1 if has_snapshots else None
        self.open()

    def open(self):
        """Start a session after the previous session was killed."""
        self.recorder = record(self.plan, self.log, snapshot_every=self._every)
        self.workers = []

    def act(self, action):
        """Act by number: 0 kills the session; 1 and 2 lose a worker; 3 retries; 4 stops a worker; others
        continue."""
        if action == 0:
            self.open()
        elif action == 3:
            self.recorder.close("interrupted")
            self.open()
            failed = choose_retries(self.plan, records(self.log.written, self.plan), ["failed"]).trial_ids
            self.recorder.retry(failed[:1], lambda *_: False)
        elif action in {1, 2, 4} and self.workers:
            worker = self.workers.pop(0)
            if action == 4:
                worker.stop()
            else:
                cause = DeathCause.TRIAL if action == 1 else DeathCause.OUTSIDE
                self.recorder.record_death(worker.attempt.trial_id, "killed", cause)
        elif action > 6 and (attempt := self.recorder.next_attempt()) is not None:
            self.workers.append(Worker(self.recorder, attempt))
        elif self.workers and self.workers[0].advance():
            self.workers.pop(0)


@examples(20)
@given(st.lists(st.integers(0, 12), max_size=80), st.sampled_from(["random", "tpe"]), st.booleans())
def test_sessions_with_snapshots_write_the_same_events(actions, sampler, has_repeats):
    plan = make_repeats_plan(sampler) if has_repeats else make_phases_plan(sampler)
    with_snapshots, without_snapshots = (
        SnapshotSession(plan, has_snapshots=has_snapshots) for has_snapshots in (True, False)
    )
    for action in actions:
        with_snapshots.act(action)
        without_snapshots.act(action)
        assert with_snapshots.log.written == without_snapshots.log.written
        check_snapshot(plan, with_snapshots.log)
    for session in (with_snapshots, without_snapshots):
        session.open()
        run_in_turn(session.recorder)
    assert with_snapshots.log.written == without_snapshots.log.written
    assert with_snapshots.recorder.is_finished


def check_snapshot(plan, log):
    if log.stored_snapshot is not None:
        expected = fold_events(plan, log.written[: log.stored_snapshot.seq])
        assert zlib.decompress(log.stored_snapshot.content) == zlib.decompress(expected.content())


def test_session_with_a_snapshot_reads_no_earlier_event():
    plan, complete_log = make_repeats_plan(), MemoryLog()
    run_in_turn(record(plan, complete_log))
    for cut in complete_log.batches[:: len(complete_log.batches) // 5]:
        log = MemoryLog(complete_log.written[:cut])
        record(plan, log, snapshot_every=1)
        assert log.stored_snapshot is not None
        events = log.events
        log.events = lambda after=0, log=log, events=events: (  # type: ignore[method-assign]
            events(after)
            if after >= log.stored_snapshot.seq
            else pytest.fail("the session must not read all events")
        )
        run_in_turn(record(plan, log, snapshot_every=1))
        assert content(log.written) == content(complete_log.written)


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: replace(stored, content=stored.content[:-9]),
        lambda stored: replace(stored, content=zlib.compress(b"[0,null,0]\n")),
        lambda stored: replace(stored, made_for="another plan"),
    ],
)
def test_unusable_snapshot_is_ignored(change):
    plan, complete_log = make_phases_plan(), MemoryLog()
    run_in_turn(record(plan, complete_log))
    log = MemoryLog(complete_log.written[: complete_log.batches[40]])
    record(plan, log, snapshot_every=1)
    assert log.stored_snapshot is not None
    log.stored_snapshot = change(log.stored_snapshot)
    run_in_turn(record(plan, log, snapshot_every=1))
    assert content(log.written) == content(complete_log.written)
