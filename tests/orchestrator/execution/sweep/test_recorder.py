"""What is written, when, by whom; and what is not."""

import time
from dataclasses import replace

import pytest

from orchestrator.conductor.attempts import MOST_KILLS
from orchestrator.conductor.messages import Continue, Reply, Stop
from orchestrator.errors import LeaseLost
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.fold import records
from orchestrator.spec.section import Resources
from orchestrator.trials import DeathCause, Outcome, OutcomeKind
from tests.support.processes.logs import NOWHERE, Clock, MemoryLog, record
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.driving import DONE, Worker, attempts, measurement, run_in_turn
from trainables.protocol import Job, Measurement

STOPPED = Outcome(OutcomeKind.STOPPED, "interrupted")
CRASH = Outcome(OutcomeKind.CRASHED, "KeyError")


def at(step, value=0.5, seconds=None):
    return Measurement(step, float(step) if seconds is None else seconds, {"valid/score": value})


def kinds(log, trial_id=None):
    return [each.kind.value for each in log.written if trial_id in {None, each.trial_id}]


def test_opening_says_who_and_what():
    log, plan = MemoryLog(), make_plan()
    record(plan, log, clock=Clock(77.0))
    (event,) = log.written
    assert (event.kind, event.at, event.payload["spec_digest"]) == (EventKind.OPENED, 77.0, plan.spec_digest)


def test_an_attempt_is_written_before_it_is_handed_out():
    log = MemoryLog()
    recorder = record(make_plan(), log)
    attempt = recorder.ask()
    assert kinds(log, attempt.trial_id) == ["asked", "started"]
    assert log.batches == [1, 3]


def test_a_reply_is_one_transaction(tmp_path):
    log = MemoryLog()
    recorder = record(make_plan(), log, root=tmp_path)
    attempt = recorder.ask()
    before = len(log.batches)
    assert recorder.record(attempt.trial_id, attempt.token, Reply(at(3), 3, DONE)) == Continue()
    assert kinds(log, attempt.trial_id) == ["asked", "started", "measured", "checkpointed", "ended"]
    assert len(log.batches) == before + 1
    (saved,) = log.of(EventKind.CHECKPOINTED)
    assert saved.payload == {"step": 3, "path": f"checkpoints/{attempt.trial_id}/step-000000003"}


def test_data_are_written_before_any_trial_and_every_record_has_them():
    log, plan = MemoryLog(), make_plan()
    recorder = record(plan, log)
    recorder.data_are_there({})
    recorder.data_are_there({"listops/train": "11aa"})
    recorder.ask()
    assert kinds(log) == ["opened", "read", "asked", "started"]
    (found,) = records(log.written, plan)
    assert found.provenance["data"] == {"listops/train": "11aa"}


def test_examples_are_written_with_their_measurement_and_once(tmp_path):
    log = MemoryLog()
    recorder = record(make_plan(), log, root=tmp_path)
    attempt = recorder.ask()
    shown = Measurement(3, 3.0, {"valid/score": 0.5}, ({"number": 1},))
    recorder.record(attempt.trial_id, attempt.token, Reply(shown))
    recorder.record(attempt.trial_id, attempt.token, Reply(shown, 3, DONE))
    assert kinds(log, attempt.trial_id)[2:] == ["measured", "kept", "checkpointed", "ended"]
    (kept,) = log.of(EventKind.KEPT)
    assert kept.payload == {"step": 3, "examples": [{"number": 1}]}


def test_replies_taken_together_are_one_transaction_and_checkpoints_outlive_it(tmp_path):
    log = MemoryLog()
    recorder = record(make_plan(), log, root=tmp_path)
    attempt = recorder.ask()
    before = len(log.batches)
    (attempt.checkpoints / "step-000000002").mkdir(parents=True)
    with recorder.together():
        for reply in (Reply(at(1)), Reply(at(2), 2), Reply(at(3), ended=DONE)):
            assert recorder.record(attempt.trial_id, attempt.token, reply) == Continue()
        assert len(log.batches) == before, "nothing is written yet"
        assert attempt.checkpoints.exists(), "a crash now must find the checkpoint"
    assert kinds(log, attempt.trial_id)[2:] == ["measured", "measured", "checkpointed", "measured", "ended"]
    assert len(log.batches) == before + 1
    assert not attempt.checkpoints.exists()


def test_the_three_parts_of_a_reply_can_come_alone():
    log = MemoryLog()
    recorder = record(make_plan(), log)
    attempt = recorder.ask()
    assert recorder.record(attempt.trial_id, attempt.token, Reply(measurement=at(1))) == Continue()
    assert recorder.record(attempt.trial_id, attempt.token, Reply(checkpoint=1)) == Continue()
    recorder.record(attempt.trial_id, attempt.token, Reply(ended=DONE))
    assert log.outcomes() == {attempt.trial_id: OutcomeKind.FINISHED}


def test_a_job_holds_what_the_workload_needs(tmp_path):
    plan = make_plan(1, trials_per_arm=0, seeds=(7,), posthoc=({"model.shift": 1.0},))
    recorder = record(plan, MemoryLog(), root=tmp_path)
    confirm = recorder.ask()
    job = confirm.job(tmp_path / "data")
    assert job == Job(confirm.trial.settings, 7, "confirm", ("test",), tmp_path / "data", None)
    recorder.record(confirm.trial_id, 1, Reply(at(1), ended=DONE))
    folder = SweepFolder(tmp_path)
    reread = recorder.ask()
    assert reread.checkpoints == folder.checkpoint(reread.trial_id)
    assert reread.job(tmp_path).source == folder.checkpoint(confirm.trial_id) / "step-000000001"


def test_steps_that_are_recorded_are_dropped():
    log, plan = MemoryLog(), make_plan(1)
    first = record(plan, log).ask()
    recorder = record(plan, log)
    again = recorder.ask()
    assert again.trial == first.trial
    for step, value in [(1, 0.1), (2, 0.2), (2, 9.0), (1, 9.0), (3, 0.3)]:
        assert recorder.record(again.trial_id, again.token, Reply(measurement=at(step, value))) == Continue()
    measured = [
        (each.payload["step"], each.payload["metrics"]["valid/score"]) for each in log.of(EventKind.MEASURED)
    ]
    assert measured == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_a_superseded_attempt_is_told_to_stop_and_writes_nothing():
    log, plan = MemoryLog(), make_plan(1)
    recorder = record(plan, log)
    old = recorder.ask()
    recorder.record_death(old.trial_id, "node gone", DeathCause.TRIAL)
    new = recorder.ask()
    assert (new.trial, new.token) == (old.trial, old.token + 1)
    before = len(log.written)
    decision = recorder.record(old.trial_id, old.token, Reply(at(1), 1, DONE))
    assert decision == Stop(OutcomeKind.STOPPED, "attempt 1 was superseded by attempt 2")
    assert len(log.written) == before
    assert recorder.record(new.trial_id, new.token, Reply(measurement=at(1))) == Continue()


def test_a_lost_worker_that_turns_up_is_heard_while_nobody_superseded_it():
    log = MemoryLog()
    recorder = record(make_plan(1), log)
    attempt = recorder.ask()
    recorder.record_death(attempt.trial_id, "silent for a minute", DeathCause.TRIAL)
    recorder.record(attempt.trial_id, attempt.token, Reply(at(1), ended=DONE))
    assert log.outcomes() == {attempt.trial_id: OutcomeKind.FINISHED}
    assert recorder.ask().trial_id != attempt.trial_id


def test_nothing_is_written_after_the_end():
    log = MemoryLog()
    recorder = record(make_plan(1), log)
    attempt = recorder.ask()
    recorder.record(attempt.trial_id, attempt.token, Reply(ended=CRASH))
    before = len(log.written)
    assert isinstance(recorder.record(attempt.trial_id, attempt.token, Reply(measurement=at(1))), Stop)
    recorder.record(attempt.trial_id, attempt.token, Reply(ended=DONE))
    assert recorder.record_death(attempt.trial_id, "late", DeathCause.TRIAL).kind is OutcomeKind.CRASHED
    assert len(log.written) == before


def test_a_lost_worker_is_retried_then_its_trial_has_crashed():
    log, plan = MemoryLog(), make_plan(1, resources=Resources(retries=2))
    recorder = record(plan, log)
    trial_id = recorder.ask().trial_id
    assert recorder.record_death(trial_id, "SIGKILL", DeathCause.TRIAL).kind is OutcomeKind.STOPPED
    assert recorder.record_death(trial_id, "told twice", DeathCause.TRIAL).kind is OutcomeKind.STOPPED
    recorder = record(plan, log)  # the count outlives the session
    assert recorder.ask().trial_id == trial_id
    assert recorder.record_death(trial_id, "SIGKILL", DeathCause.TRIAL).kind is OutcomeKind.STOPPED
    assert recorder.ask().token == 3
    outcome = recorder.record_death(trial_id, "SIGKILL", DeathCause.TRIAL)
    assert outcome == Outcome(
        OutcomeKind.CRASHED, "worker died, time 3 of at most 3 without progress: SIGKILL"
    )
    assert log.outcomes() == {trial_id: OutcomeKind.CRASHED}
    assert [each.payload["lost"] for each in log.of(EventKind.ENDED)] == [True] * 3


def kill(recorder, trial_id):
    return recorder.record_death(trial_id, "SIGKILL", DeathCause.OUTSIDE)


def test_an_innocent_trial_is_killed_any_number_of_times_while_others_make_progress():
    log, plan = MemoryLog(), make_plan(2, trials_per_arm=1, seeds=(), resources=Resources(retries=0))
    recorder = record(plan, log)
    innocent, other = recorder.ask(), recorder.ask()
    for step in range(1, 5 * MOST_KILLS):
        assert kill(recorder, innocent.trial_id).kind is OutcomeKind.STOPPED
        recorder.record(other.trial_id, other.token, Reply(measurement=at(step)))
        again = recorder.ask()
        assert (again.trial_id, again.token) == (innocent.trial_id, innocent.token + step)
    recorder.record(again.trial_id, again.token, Reply(at(1), ended=DONE))
    recorder.record(other.trial_id, other.token, Reply(ended=DONE))
    assert set(log.outcomes().values()) == {OutcomeKind.FINISHED}
    assert recorder.finished


def test_a_trial_that_is_killed_again_and_again_lets_others_go_first():
    log, plan = MemoryLog(), make_plan(2, trials_per_arm=1, seeds=())
    recorder = record(plan, log)
    innocent = recorder.ask()
    for _ in range(MOST_KILLS - 1):
        kill(recorder, innocent.trial_id)
        assert recorder.ask().trial_id == innocent.trial_id
    kill(recorder, innocent.trial_id)
    other = recorder.ask()
    assert other.trial_id != innocent.trial_id
    assert recorder.ask() is None, "it waits for the other one"
    assert not recorder.draining
    recorder.record(other.trial_id, other.token, Reply(at(1), ended=DONE))
    assert recorder.ask().trial_id == innocent.trial_id


def killed_alone(**more):
    """A sweep whose only trial is killed each time."""
    log, plan = MemoryLog(), replace(make_plan(1, trials_per_arm=1, seeds=()), **more)
    recorder, count = record(plan, log), 0
    while (attempt := recorder.ask()) is not None:
        kill(recorder, attempt.trial_id)
        count += 1
    assert count == MOST_KILLS
    return recorder, log, plan


def test_a_sweep_of_which_nothing_is_left_but_killed_trials_stops_and_can_be_resumed():
    recorder, log, plan = killed_alone(continue_on_error=False)
    assert recorder.draining
    assert not recorder.finished
    recorder.close()
    (closed,) = log.of(EventKind.CLOSED)
    (asked,) = log.of(EventKind.ASKED)
    assert closed.payload["reason"] == "error"
    assert asked.trial_id in closed.payload["why"]
    assert "SIGKILL" in closed.payload["why"]
    assert log.outcomes() == {}
    resumed = record(plan, log)
    attempt = resumed.ask()
    resumed.record(attempt.trial_id, attempt.token, Reply(at(1), ended=DONE))
    assert resumed.finished


def test_where_errors_do_not_stop_the_sweep_its_killed_trials_have_crashed():
    recorder, log, _ = killed_alone(continue_on_error=True)
    assert recorder.finished
    assert list(log.outcomes().values()) == [OutcomeKind.CRASHED]


def test_losses_count_in_a_row_without_progress(tmp_path):
    log, plan = MemoryLog(), make_plan(1, resources=Resources(retries=1))
    recorder = record(plan, log, root=tmp_path)
    for step in range(1, 5):
        attempt = recorder.ask()
        recorder.record(
            attempt.trial_id, attempt.token, Reply(at(step), checkpoint=step if step > 2 else None)
        )
        assert (
            recorder.record_death(attempt.trial_id, "SIGKILL", DeathCause.TRIAL).kind is OutcomeKind.STOPPED
        )
    attempt = recorder.ask()
    recorder.record(attempt.trial_id, attempt.token, Reply(measurement=at(4)))
    recorder.record(attempt.trial_id, attempt.token, Reply(checkpoint=4))
    assert recorder.record_death(attempt.trial_id, "SIGKILL", DeathCause.TRIAL).kind is OutcomeKind.CRASHED, (
        "that was there before"
    )


def test_interruptions_and_killed_sessions_are_not_lost_workers():
    log, plan = MemoryLog(), make_plan(1, resources=Resources(retries=1))
    for _ in range(4):
        attempt = record(plan, log).ask()
    recorder = record(plan, log)
    for _ in range(4):
        attempt = recorder.ask()
        recorder.record(attempt.trial_id, attempt.token, Reply(ended=STOPPED))
    assert recorder.ask().token == 9
    assert recorder.record_death(attempt.trial_id, "SIGKILL", DeathCause.TRIAL).kind is OutcomeKind.STOPPED
    assert log.outcomes() == {}


def test_a_stop_that_was_decided_is_written_when_the_session_that_decided_it_died():
    plan = make_plan(1, trials_per_arm=1, seeds=(7,), resources=Resources(minutes=1.0))
    log = MemoryLog()
    recorder = record(plan, log)
    attempt = recorder.ask()
    decision = recorder.record(attempt.trial_id, attempt.token, Reply(measurement=at(1, seconds=90.0)))
    assert isinstance(decision, Stop)
    resumed = record(plan, log)
    assert log.outcomes()[attempt.trial_id] is OutcomeKind.TIMED_OUT
    assert resumed.finished, "its only winner is gone, so the confirm trial is unrunnable and recorded"
    assert len(log.outcomes()) == len(plan.trials)


def test_a_stop_that_was_decided_outlives_a_lost_worker_and_an_interruption():
    for lose in (True, False):
        log = MemoryLog()
        recorder = record(make_plan(1, resources=Resources(minutes=1.0, retries=0)), log)
        attempt = recorder.ask()
        recorder.record(attempt.trial_id, attempt.token, Reply(measurement=at(1, seconds=90.0)))
        if lose:
            recorder.record_death(attempt.trial_id, "SIGKILL", DeathCause.TRIAL)
        else:
            recorder.record(attempt.trial_id, attempt.token, Reply(ended=STOPPED))
        assert log.outcomes() == {attempt.trial_id: OutcomeKind.TIMED_OUT}


def test_what_a_worker_does_after_a_stop_was_decided_is_not_recorded():
    log = MemoryLog()
    recorder = record(make_plan(1, resources=Resources(minutes=1.0)), log)
    attempt = recorder.ask()
    decision = recorder.record(attempt.trial_id, attempt.token, Reply(measurement=at(1, seconds=90.0)))
    before = len(log.written)
    assert recorder.record(attempt.trial_id, attempt.token, Reply(at(2), 2)) == decision
    assert len(log.written) == before
    recorder.record(attempt.trial_id, attempt.token, Reply(at(3), 3, DONE))
    assert kinds(log, attempt.trial_id) == ["asked", "started", "measured", "ended"]
    assert log.outcomes() == {attempt.trial_id: OutcomeKind.TIMED_OUT}


def test_a_trial_that_ends_with_the_report_that_would_stop_it_has_finished():
    log = MemoryLog()
    recorder = record(make_plan(1, resources=Resources(minutes=1.0)), log)
    attempt = recorder.ask()
    recorder.record(attempt.trial_id, attempt.token, Reply(at(1, seconds=90.0), 1, DONE))
    assert log.outcomes() == {attempt.trial_id: OutcomeKind.FINISHED}


def test_a_worker_that_missed_its_stop_hears_it_again():
    recorder = record(make_plan(1, resources=Resources(minutes=1.0)), MemoryLog())
    attempt = recorder.ask()
    decision = recorder.record(attempt.trial_id, attempt.token, Reply(measurement=at(1, seconds=90.0)))
    assert (
        recorder.record(attempt.trial_id, attempt.token, Reply(measurement=at(1, seconds=90.0))) == decision
    )


def test_doomed_trials_are_recorded_like_any_other():
    plan = make_plan([make_arm("bad", fault="raise")], trials_per_arm=2, posthoc=({"model.shift": 1.0},))
    log = MemoryLog()
    recorder = record(plan, log)
    run_in_turn(recorder)
    assert recorder.finished
    assert log.outcomes() == {each.trial_id: OutcomeKind.CRASHED for each in plan.trials}
    unrunnable = next(each.trial_id for each in plan.trials if each.phase == "posthoc")
    assert kinds(log, unrunnable) == ["asked", "ended"]


def test_what_an_end_makes_unrunnable_is_written_with_it():
    plan = make_plan(1, trials_per_arm=1, seeds=(7,))
    log = MemoryLog()
    recorder = record(plan, log)
    attempt = recorder.ask()
    recorder.record(attempt.trial_id, attempt.token, Reply(ended=CRASH))
    assert recorder.finished
    assert len(log.outcomes()) == 2
    assert log.batches[-2:] == [3, 6], "one transaction for one end and what follows from it"


def test_draining_hands_out_nothing_and_stops_what_runs():
    recorder = record(make_plan(1), MemoryLog())
    attempt = recorder.ask()
    recorder.drain("the sweep was asked to stop")
    assert recorder.draining == "the sweep was asked to stop"
    decision = recorder.record(attempt.trial_id, attempt.token, Reply(measurement=at(1)))
    assert decision == Stop(OutcomeKind.STOPPED, "the sweep was asked to stop")
    recorder.record(attempt.trial_id, attempt.token, Reply(ended=decision.outcome))
    assert recorder.ask() is None


def test_a_trial_that_ends_while_draining_has_ended():
    log = MemoryLog()
    recorder = record(make_plan(1), log)
    attempt = recorder.ask()
    recorder.drain("the sweep was asked to stop")
    recorder.record(attempt.trial_id, attempt.token, Reply(at(1), ended=DONE))
    assert log.outcomes() == {attempt.trial_id: OutcomeKind.FINISHED}


def test_the_budget_counts_time_held_open_over_sessions():
    plan = make_plan(1, trials_per_arm=9, wall_clock_hours=1.0)
    log, clock = MemoryLog(), Clock(0.0)
    recorder = record(plan, log, clock=clock)
    first = recorder.ask()
    clock.now = 3000.0
    assert recorder.record(first.trial_id, first.token, Reply(measurement=at(1))) == Continue()
    recorder.close()
    clock.now = 90000.0
    recorder = record(plan, log, clock=clock)
    assert recorder.held_open_s() == 3000.0
    again = recorder.ask()
    clock.now += 599.0
    assert recorder.record(again.trial_id, again.token, Reply(measurement=at(2))) == Continue()
    clock.now += 1.0
    reason = "the budget of 1 hours of wall clock is used up"
    assert recorder.record(again.trial_id, again.token, Reply(measurement=at(3))) == Stop(
        OutcomeKind.STOPPED, reason
    )
    assert recorder.ask() is None
    recorder.close()
    assert [each.payload["reason"] for each in log.of(EventKind.CLOSED)] == ["interrupted", "budget"]


def test_setting_the_clock_uses_up_no_budget(monkeypatch):
    plan, log = make_plan(1, trials_per_arm=9, wall_clock_hours=1.0), MemoryLog()
    recorder = Recorder(plan, log, log.claim(), NOWHERE)
    first = recorder.ask()
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 40 * 24 * 3600)
    assert recorder.record(first.trial_id, first.token, Reply(measurement=at(1))) == Continue()
    assert recorder.held_open_s() < 600
    again = Recorder(plan, log, log.claim(), NOWHERE)
    monkeypatch.setattr(time, "time", now)
    assert again.ask() is not None
    assert again.held_open_s() < 600
    assert not again.draining


def test_closing_a_finished_sweep_says_done_once():
    log = MemoryLog()
    recorder = record(make_plan(1, trials_per_arm=1), log)
    run_in_turn(recorder)
    recorder.close()
    recorder.close()
    assert [each.payload["reason"] for each in log.of(EventKind.CLOSED)] == ["done"]


def test_a_reason_can_be_given_to_close():
    log = MemoryLog()
    record(make_plan(1), log).close("disk full")
    assert log.written[-1].payload == {"reason": "disk full"}


def test_who_lost_the_lease_writes_nothing_more():
    log, plan = MemoryLog(), make_plan(1)
    old = record(plan, log)
    attempt = old.ask()
    record(plan, log)
    before = list(log.written)
    with pytest.raises(LeaseLost, match="only token 2 may write, got 1"):
        old.record(attempt.trial_id, attempt.token, Reply(measurement=at(1)))
    assert log.written == before


def checkpoint(root, attempt, step=1):
    folder = SweepFolder(root).checkpoint(attempt.trial_id) / f"step-{step:09d}"
    folder.mkdir(parents=True)
    return folder.parent


def test_checkpoints_of_ended_trials_go_but_for_confirmed_ones(tmp_path):
    recorder = record(make_plan(1, trials_per_arm=2, seeds=(7, 8)), MemoryLog(), root=tmp_path)
    searched = list(attempts(recorder))
    folders = [checkpoint(tmp_path, each) for each in searched]
    recorder.record(searched[0].trial_id, 1, Reply(at(1), 1, DONE))
    assert [each.exists() for each in folders] == [False, True]
    recorder.record(searched[1].trial_id, 1, Reply(ended=STOPPED))
    assert folders[1].exists()
    recorder.record(recorder.ask().trial_id, 2, Reply(at(1), 1, DONE))
    confirmed = list(attempts(recorder))
    folders = [checkpoint(tmp_path, each) for each in confirmed]
    recorder.record(confirmed[0].trial_id, 1, Reply(at(1), 1, DONE))
    recorder.record(confirmed[1].trial_id, 1, Reply(ended=CRASH))
    assert [each.exists() for each in folders] == [True, False]


def test_checkpoints_a_killed_session_left_behind_go_at_the_next_opening(tmp_path):
    log, plan = MemoryLog(), make_plan(1, resources=Resources(retries=0))
    recorder = record(plan, log, root=tmp_path)
    ended, running = recorder.ask(), recorder.ask()
    recorder.record(ended.trial_id, 1, Reply(at(1), ended=DONE))
    left, needed = checkpoint(tmp_path, ended), checkpoint(tmp_path, running)
    record(plan, log, root=tmp_path)
    assert (left.exists(), needed.exists()) == (False, True)


def test_progress_is_the_conductors():
    recorder = record(make_plan(2, trials_per_arm=2), MemoryLog())
    worker = Worker(recorder, recorder.ask())
    worker.advance()
    assert [(each.arm, each.running, each.seconds) for each in recorder.progress()] == [
        ("arm-0", 1, 0.5),
        ("arm-1", 0, 0.0),
    ]


def test_a_log_with_events_of_no_trial_is_fine():
    log = MemoryLog([Event(EventKind.OPENED, 0.0), Event(EventKind.CLOSED, 1.0, None, {"reason": "done"})])
    attempt = record(make_plan(1), log).ask()
    assert measurement(attempt.trial, 1).step == 1
