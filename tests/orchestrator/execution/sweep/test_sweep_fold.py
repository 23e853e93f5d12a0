"""Snapshots: what a session restores from one is what it would fold from all events."""

import zlib
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.conductor.retrying import choose
from orchestrator.execution.sweep import sweep_fold
from orchestrator.execution.sweep.sweep_fold import SweepFold, snapshot_key
from orchestrator.ledger.events import Event
from orchestrator.ledger.fold import records
from orchestrator.plan.types import AnswerPlan, ArmLimits, Limits, Plan
from orchestrator.spec.section import Objective
from orchestrator.trials import DeathCause, OutcomeKind
from search_spaces.paths import with_values
from tests.support.processes.logs import MemoryLog, content, record
from tests.support.specs.examples import examples
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.driving import Worker, run_in_turn
from tests.support.sweeps.repeated import repeated_plan


def plan_of(sampler: str = "random", scope: str = "last") -> Plan:
    """Every phase; arms whose trials diverge, crash or are infeasible, beside a sound one."""
    arms = [
        make_arm("sound"),
        make_arm("weak", fault="diverge", fault_at=4),
        make_arm("narrow", fault="infeasible", most_x=0.6),
        make_arm("hopeless", fault="raise", fault_at=3),
    ]
    objectives = (Objective(metric="valid/score", goal="max", scope=scope),)
    return make_plan(
        arms, trials_per_arm=4, sampler=sampler, objectives=objectives, posthoc=({"model.shift": 0.5},)
    )


def repeats_of(sampler: str = "random") -> Plan:
    """Repeated searches that may end early, a control, and an arm whose later repeats a look may skip."""
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


PLANS = {
    "last": plan_of(),
    "best": plan_of(scope="best"),
    "mean": plan_of(scope="mean-of-last-2"),
    "repeats": repeats_of(),
}


def folded(plan: Plan, events: Sequence[Event]) -> SweepFold:
    fold = SweepFold(plan)
    for event in events:
        fold.hear(event)
    return fold


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_restored_state_is_the_folded_one_after_any_event(plan: Plan) -> None:
    log = MemoryLog()
    run_in_turn(record(plan, log))
    for cut in range(0, len(log.written), len(log.written) // 25):
        before = folded(plan, log.written[:cut])
        restored = SweepFold.restored(plan, cut, before.content())
        assert restored is not None
        assert restored.content() == before.content()
        for event in log.written[cut:]:
            restored.hear(event)
        assert restored.content() == folded(plan, log.written).content()


def test_a_sweep_with_repeats_skips_what_looks_and_limits_make_unnecessary() -> None:
    """So that the tests here are of all that a state holds."""
    plan, log = PLANS["repeats"], MemoryLog()
    run_in_turn(record(plan, log))
    skipped = [each for each in records(log.written, plan) if each.outcome is OutcomeKind.SKIPPED]
    assert {"search", "confirm"} <= {each.phase for each in skipped}
    assert {each.repeat for each in skipped} >= {0, 3}


class Session:
    """The newest session of a sweep, with or without snapshots, and its workers."""

    def __init__(self, plan: Plan, *, keeps_snapshots: bool) -> None:
        self.plan, self.log = plan, MemoryLog()
        self._every = 1 if keeps_snapshots else None
        self.open()

    def open(self) -> None:
        """Start a session where the one before was killed."""
        self.recorder = record(self.plan, self.log, snapshot_every=self._every)
        self.workers: list[Worker] = []

    def act(self, act: int) -> None:
        """0 kills the session; 1 and 2 lose a worker; 3 retries; 4 stops a worker; others go on."""
        if act == 0:
            self.open()
        elif act == 3:
            self.recorder.close("interrupted")
            self.open()
            failed = choose(self.plan, records(self.log.written, self.plan), ["failed"]).trial_ids
            self.recorder.retry(failed[:1], lambda *_: False)
        elif act in {1, 2, 4} and self.workers:
            worker = self.workers.pop(0)
            if act == 4:
                worker.stop()
            else:
                cause = DeathCause.TRIAL if act == 1 else DeathCause.OUTSIDE
                self.recorder.record_death(worker.attempt.trial_id, "killed", cause)
        elif act > 6 and (attempt := self.recorder.ask()) is not None:
            self.workers.append(Worker(self.recorder, attempt))
        elif self.workers and self.workers[0].advance():
            self.workers.pop(0)


@examples(20)
@given(st.lists(st.integers(0, 12), max_size=80), st.sampled_from(["random", "tpe"]), st.booleans())
def test_sessions_that_keep_snapshots_write_what_others_write(
    acts: list[int], sampler: str, has_repeats: bool
) -> None:
    plan = repeats_of(sampler) if has_repeats else plan_of(sampler)
    keeping, folding = (Session(plan, keeps_snapshots=each) for each in (True, False))
    for act in acts:
        keeping.act(act)
        folding.act(act)
        assert keeping.log.written == folding.log.written
        check(plan, keeping.log)
    for each in (keeping, folding):
        each.open()
        run_in_turn(each.recorder)
    assert keeping.log.written == folding.log.written
    assert keeping.recorder.finished


def check(plan: Plan, log: MemoryLog) -> None:
    if log.kept is not None:
        expected = folded(plan, log.written[: log.kept.seq])
        assert zlib.decompress(log.kept.content) == zlib.decompress(expected.content())


@pytest.mark.parametrize("plan", [PLANS["last"], PLANS["repeats"]], ids=["last", "repeats"])
def test_a_session_that_starts_from_a_snapshot_reads_no_event_before_it(plan: Plan) -> None:
    whole = MemoryLog()
    run_in_turn(record(plan, whole))
    for cut in whole.batches[:: len(whole.batches) // 20]:
        log = MemoryLog(whole.written[:cut])
        record(plan, log, snapshot_every=1)
        assert log.kept is not None
        events = log.events
        log.events = lambda after=0, log=log, events=events: (  # type: ignore[method-assign]
            events(after) if after >= log.kept.seq else pytest.fail("all events were read")
        )
        run_in_turn(record(plan, log, snapshot_every=1))
        assert content(log.written) == content(whole.written)


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: replace(kept, content=b"{}"),
        lambda kept: replace(kept, content=kept.content[:-9]),
        lambda kept: replace(kept, content=zlib.compress(b"[0,null,0]\n")),
        lambda kept: replace(kept, made_for="another plan"),
    ],
)
def test_a_snapshot_that_cannot_be_used_is_ignored(change) -> None:
    plan, whole = plan_of(), MemoryLog()
    run_in_turn(record(plan, whole))
    log = MemoryLog(whole.written[: whole.batches[40]])
    record(plan, log, snapshot_every=1)
    assert log.kept is not None
    log.kept = change(log.kept)
    run_in_turn(record(plan, log, snapshot_every=1))
    assert content(log.written) == content(whole.written)


def test_a_snapshot_is_made_for_one_plan_and_one_format(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {snapshot_key(plan_of()), snapshot_key(make_plan(2)), snapshot_key(make_plan(3))}
    monkeypatch.setattr(sweep_fold, "FORMAT", sweep_fold.FORMAT + 1)
    assert len(known | {snapshot_key(plan_of())}) == 4
