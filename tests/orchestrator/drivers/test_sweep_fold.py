"""Snapshots: what a session restores from one is what it would fold from all events."""

import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.conductor.retrying import choose
from orchestrator.drivers import sweep_fold
from orchestrator.drivers.sweep_fold import SweepFold, made_for
from orchestrator.ledger.events import Event
from orchestrator.ledger.fold import records
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Objective
from orchestrator.trials import DeathCause
from tests.support.driving import Worker, run_in_turn
from tests.support.examples import examples
from tests.support.logs import MemoryLog, content, record
from tests.support.plans import make_arm, make_plan


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


def folded(plan: Plan, events: list[Event]) -> SweepFold:
    fold = SweepFold(plan)
    for event in events:
        fold.hear(event)
    return fold


@pytest.mark.parametrize("scope", ["last", "best", "mean-of-last-2"])
def test_a_restored_state_is_the_folded_one_after_any_event(scope: str) -> None:
    plan, log = plan_of(scope=scope), MemoryLog()
    run_in_turn(record(plan, log))
    for cut in range(0, len(log.written), 7):
        before = folded(plan, log.written[:cut])
        restored = SweepFold.restored(plan, cut, before.content())
        assert restored is not None
        assert restored.content() == before.content()
        for event in log.written[cut:]:
            restored.hear(event)
        assert restored.content() == folded(plan, log.written).content()


@examples(15)
@given(st.lists(st.integers(0, 9), max_size=60), st.sampled_from(["random", "tpe"]))
def test_histories_with_deaths_and_retries_are_restored_as_folded(acts: list[int], sampler: str) -> None:
    """Acts: 0 kills the session, 1 loses a worker, 2 stops one, 3 retries what failed; others go on."""
    plan, log = plan_of(sampler), MemoryLog()
    recorder, workers = record(plan, log, snapshot_every=1), []
    for act in acts:
        if act == 0:
            recorder, workers = record(plan, log, snapshot_every=1), []
        elif act == 3:
            recorder.close("interrupted")
            recorder, workers = record(plan, log, snapshot_every=1), []
            failed = choose(plan, records(log.written, plan), ["failed"]).trial_ids
            recorder.retry(failed[:1], lambda *_: False)
        elif act in {1, 2} and workers:
            worker = workers.pop(0)
            if act == 1:
                recorder.lost(worker.attempt.trial_id, "killed", DeathCause.TRIAL)
            else:
                worker.stop()
        elif act > 6 and (attempt := recorder.ask()) is not None:
            workers.append(Worker(recorder, attempt))
        elif workers and workers[0].advance():
            workers.pop(0)
        check(plan, log)
    undisturbed = MemoryLog(log.written)
    run_in_turn(record(plan, undisturbed))
    run_in_turn(record(plan, log, snapshot_every=1))
    assert content(log.written) == content(undisturbed.written)


def check(plan: Plan, log: MemoryLog) -> None:
    if log.kept is not None:
        expected = folded(plan, log.written[: log.kept.seq])
        assert zlib.decompress(log.kept.content) == zlib.decompress(expected.content())


def test_a_session_that_starts_from_a_snapshot_reads_no_event_before_it() -> None:
    plan, whole = plan_of(), MemoryLog()
    run_in_turn(record(plan, whole))
    for cut in whole.batches[::9]:
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
    known = {made_for(plan_of()), made_for(make_plan(2)), made_for(make_plan(3))}
    monkeypatch.setattr(sweep_fold, "FORMAT", sweep_fold.FORMAT + 1)
    assert len(known | {made_for(plan_of())}) == 4
