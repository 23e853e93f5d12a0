"""The recorder writes the events of attempts, replies, ends and stops to the ledger."""

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
from tests.support.sweeps.driving import DONE, Worker, measurement, run_in_turn
from trainables.protocol import Job, Measurement

STOPPED = Outcome(OutcomeKind.STOPPED, "interrupted")
CRASH = Outcome(OutcomeKind.CRASHED, "KeyError")


def measurement_at(step, value=0.5, seconds=None):
    return Measurement(step, float(step) if seconds is None else seconds, {"valid/score": value})


def event_kinds(log, trial_id=None):
    return [event.kind.value for event in log.written if trial_id in {None, event.trial_id}]


def test_attempt_is_written_before_it_starts():
    log = MemoryLog()
    recorder = record(make_plan(), log)
    attempt = recorder.ask()
    assert event_kinds(log, attempt.trial_id) == ["asked", "started"]
    assert log.batches == [1, 3]


def test_reply_is_one_transaction(tmp_path):
    log = MemoryLog()
    recorder = record(make_plan(), log, root=tmp_path)
    attempt = recorder.ask()
    count_before = len(log.batches)
    assert recorder.record(attempt.trial_id, attempt.token, Reply(measurement_at(3), 3, DONE)) == Continue()
    assert event_kinds(log, attempt.trial_id) == ["asked", "started", "measured", "checkpointed", "ended"]
    assert len(log.batches) == count_before + 1
    (checkpoint_event,) = log.of(EventKind.CHECKPOINTED)
    assert checkpoint_event.payload == {"step": 3, "path": f"checkpoints/{attempt.trial_id}/step-000000003"}


def test_data_digests_are_written_before_any_trial_and_are_in_every_record():
    log, plan = MemoryLog(), make_plan()
    recorder = record(plan, log)
    recorder.record_data({})
    recorder.record_data({"listops/train": "11aa"})
    recorder.ask()
    assert event_kinds(log) == ["opened", "read", "asked", "started"]
    (trial_record,) = records(log.written, plan)
    assert trial_record.provenance["data"] == {"listops/train": "11aa"}


def test_examples_are_written_once_with_their_measurement(tmp_path):
    log = MemoryLog()
    recorder = record(make_plan(), log, root=tmp_path)
    attempt = recorder.ask()
    with_examples = Measurement(3, 3.0, {"valid/score": 0.5}, ({"number": 1},))
    recorder.record(attempt.trial_id, attempt.token, Reply(with_examples))
    recorder.record(attempt.trial_id, attempt.token, Reply(with_examples, 3, DONE))
    assert event_kinds(log, attempt.trial_id)[2:] == ["measured", "kept", "checkpointed", "ended"]
    (examples_event,) = log.of(EventKind.KEPT)
    assert examples_event.payload == {"step": 3, "examples": [{"number": 1}]}


def test_grouped_replies_are_one_transaction_and_checkpoints_remain_until_its_end(tmp_path):
    log = MemoryLog()
    recorder = record(make_plan(), log, root=tmp_path)
    attempt = recorder.ask()
    count_before = len(log.batches)
    (attempt.checkpoints / "step-000000002").mkdir(parents=True)
    with recorder.transaction():
        for reply in (
            Reply(measurement_at(1)),
            Reply(measurement_at(2), 2),
            Reply(measurement_at(3), ended=DONE),
        ):
            assert recorder.record(attempt.trial_id, attempt.token, reply) == Continue()
        assert len(log.batches) == count_before, "events must be written at the end of the group"
        assert attempt.checkpoints.exists(), "a crash at this moment needs the checkpoint"
    assert event_kinds(log, attempt.trial_id)[2:] == [
        "measured",
        "measured",
        "checkpointed",
        "measured",
        "ended",
    ]
    assert len(log.batches) == count_before + 1
    assert not attempt.checkpoints.exists()


def test_job_contains_the_arguments_of_the_workload(tmp_path):
    plan = make_plan(1, trials_per_arm=0, seeds=(7,), posthoc=({"model.shift": 1.0},))
    recorder = record(plan, MemoryLog(), root=tmp_path)
    confirm = recorder.ask()
    job = confirm.job(tmp_path / "data")
    assert job == Job(confirm.trial.settings, 7, "confirm", ("test",), tmp_path / "data", None)
    recorder.record(confirm.trial_id, 1, Reply(measurement_at(1), ended=DONE))
    folder = SweepFolder(tmp_path)
    posthoc = recorder.ask()
    assert posthoc.checkpoints == folder.checkpoint(posthoc.trial_id)
    assert posthoc.job(tmp_path).source == folder.checkpoint(confirm.trial_id) / "step-000000001"


def test_repeated_steps_are_dropped():
    log, plan = MemoryLog(), make_plan(1)
    first_attempt = record(plan, log).ask()
    recorder = record(plan, log)
    second = recorder.ask()
    assert second.trial == first_attempt.trial
    for step, value in [(1, 0.1), (2, 0.2), (2, 9.0), (1, 9.0), (3, 0.3)]:
        assert (
            recorder.record(second.trial_id, second.token, Reply(measurement=measurement_at(step, value)))
            == Continue()
        )
    measured = [
        (event.payload["step"], event.payload["metrics"]["valid/score"])
        for event in log.of(EventKind.MEASURED)
    ]
    assert measured == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_superseded_attempt_is_stopped_and_writes_nothing():
    log, plan = MemoryLog(), make_plan(1)
    recorder = record(plan, log)
    old_attempt = recorder.ask()
    recorder.record_death(old_attempt.trial_id, "node gone", DeathCause.TRIAL)
    new_attempt = recorder.ask()
    assert (new_attempt.trial, new_attempt.token) == (old_attempt.trial, old_attempt.token + 1)
    count_before = len(log.written)
    decision = recorder.record(old_attempt.trial_id, old_attempt.token, Reply(measurement_at(1), 1, DONE))
    assert decision.kind is OutcomeKind.STOPPED
    assert len(log.written) == count_before


def test_lost_worker_that_reports_again_is_accepted_until_it_is_superseded():
    log = MemoryLog()
    recorder = record(make_plan(1), log)
    attempt = recorder.ask()
    recorder.record_death(attempt.trial_id, "silent for a minute", DeathCause.TRIAL)
    recorder.record(attempt.trial_id, attempt.token, Reply(measurement_at(1), ended=DONE))
    assert log.outcomes() == {attempt.trial_id: OutcomeKind.FINISHED}
    assert recorder.ask().trial_id != attempt.trial_id


def test_lost_worker_is_retried_until_its_trial_crashes():
    log, plan = MemoryLog(), make_plan(1, resources=Resources(retries=2))
    recorder = record(plan, log)
    trial_id = recorder.ask().trial_id
    assert recorder.record_death(trial_id, "SIGKILL", DeathCause.TRIAL).kind is OutcomeKind.STOPPED
    assert recorder.record_death(trial_id, "repeated report", DeathCause.TRIAL).kind is OutcomeKind.STOPPED
    recorder = record(plan, log)  # a new session keeps the count
    assert recorder.ask().trial_id == trial_id
    assert recorder.record_death(trial_id, "SIGKILL", DeathCause.TRIAL).kind is OutcomeKind.STOPPED
    assert recorder.ask().token == 3
    outcome = recorder.record_death(trial_id, "SIGKILL", DeathCause.TRIAL)
    assert outcome.kind is OutcomeKind.CRASHED
    assert log.outcomes() == {trial_id: OutcomeKind.CRASHED}


def kill(recorder, trial_id):
    return recorder.record_death(trial_id, "SIGKILL", DeathCause.OUTSIDE)


def test_repeatedly_killed_trial_starts_after_other_trials():
    log, plan = MemoryLog(), make_plan(2, trials_per_arm=1, seeds=())
    recorder = record(plan, log)
    killed = recorder.ask()
    for _ in range(MOST_KILLS - 1):
        kill(recorder, killed.trial_id)
        assert recorder.ask().trial_id == killed.trial_id
    kill(recorder, killed.trial_id)
    other_trial = recorder.ask()
    assert other_trial.trial_id != killed.trial_id
    assert recorder.ask() is None, "the killed trial must wait for the other trial"
    assert not recorder.draining
    recorder.record(other_trial.trial_id, other_trial.token, Reply(measurement_at(1), ended=DONE))
    assert recorder.ask().trial_id == killed.trial_id


def kill_only_trial(**plan_fields):
    """Kill the only trial of a sweep each time it starts; return recorder, log and plan."""
    log, plan = MemoryLog(), replace(make_plan(1, trials_per_arm=1, seeds=()), **plan_fields)
    recorder, count = record(plan, log), 0
    while (attempt := recorder.ask()) is not None:
        kill(recorder, attempt.trial_id)
        count += 1
    assert count == MOST_KILLS
    return recorder, log, plan


def test_sweep_with_only_killed_trials_stops_and_can_be_resumed():
    recorder, log, plan = kill_only_trial(continue_on_error=False)
    assert recorder.draining
    assert not recorder.finished
    recorder.close()
    (close_event,) = log.of(EventKind.CLOSED)
    (ask_event,) = log.of(EventKind.ASKED)
    assert close_event.payload["reason"] == "error"
    assert ask_event.trial_id in close_event.payload["why"]
    assert "SIGKILL" in close_event.payload["why"]
    assert log.outcomes() == {}
    resumed = record(plan, log)
    attempt = resumed.ask()
    resumed.record(attempt.trial_id, attempt.token, Reply(measurement_at(1), ended=DONE))
    assert resumed.finished


def test_killed_trials_crash_if_the_sweep_continues_on_errors():
    recorder, log, _ = kill_only_trial(continue_on_error=True)
    assert recorder.finished
    assert list(log.outcomes().values()) == [OutcomeKind.CRASHED]


def test_interruptions_and_killed_sessions_do_not_count_as_losses():
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


def test_pending_stop_of_a_dead_session_is_written_by_the_next():
    plan = make_plan(1, trials_per_arm=1, seeds=(7,), resources=Resources(minutes=1.0))
    log = MemoryLog()
    recorder = record(plan, log)
    attempt = recorder.ask()
    decision = recorder.record(
        attempt.trial_id, attempt.token, Reply(measurement=measurement_at(1, seconds=90.0))
    )
    assert isinstance(decision, Stop)
    resumed = record(plan, log)
    assert log.outcomes()[attempt.trial_id] is OutcomeKind.TIMED_OUT
    assert resumed.finished, "without a winner, the confirm trial must be recorded as unrunnable"
    assert len(log.outcomes()) == len(plan.trials)


def test_pending_stop_survives_a_lost_worker_and_an_interruption():
    for is_lost in (True, False):
        log = MemoryLog()
        recorder = record(make_plan(1, resources=Resources(minutes=1.0, retries=0)), log)
        attempt = recorder.ask()
        recorder.record(attempt.trial_id, attempt.token, Reply(measurement=measurement_at(1, seconds=90.0)))
        if is_lost:
            recorder.record_death(attempt.trial_id, "SIGKILL", DeathCause.TRIAL)
        else:
            recorder.record(attempt.trial_id, attempt.token, Reply(ended=STOPPED))
        assert log.outcomes() == {attempt.trial_id: OutcomeKind.TIMED_OUT}


def test_work_after_a_stop_decision_is_not_recorded():
    log = MemoryLog()
    recorder = record(make_plan(1, resources=Resources(minutes=1.0)), log)
    attempt = recorder.ask()
    decision = recorder.record(
        attempt.trial_id, attempt.token, Reply(measurement=measurement_at(1, seconds=90.0))
    )
    count_before = len(log.written)
    assert recorder.record(attempt.trial_id, attempt.token, Reply(measurement_at(2), 2)) == decision
    assert len(log.written) == count_before
    recorder.record(attempt.trial_id, attempt.token, Reply(measurement_at(3), 3, DONE))
    assert event_kinds(log, attempt.trial_id) == ["asked", "started", "measured", "ended"]
    assert log.outcomes() == {attempt.trial_id: OutcomeKind.TIMED_OUT}


def test_trial_that_ends_with_its_last_report_before_a_stop_finishes():
    log = MemoryLog()
    recorder = record(make_plan(1, resources=Resources(minutes=1.0)), log)
    attempt = recorder.ask()
    recorder.record(attempt.trial_id, attempt.token, Reply(measurement_at(1, seconds=90.0), 1, DONE))
    assert log.outcomes() == {attempt.trial_id: OutcomeKind.FINISHED}


def test_end_and_resulting_unrunnable_trials_are_one_transaction():
    plan = make_plan(1, trials_per_arm=1, seeds=(7,))
    log = MemoryLog()
    recorder = record(plan, log)
    attempt = recorder.ask()
    recorder.record(attempt.trial_id, attempt.token, Reply(ended=CRASH))
    assert recorder.finished
    assert len(log.outcomes()) == 2
    assert log.batches[-2:] == [3, 6], "an end and its consequences must be one transaction"


def test_budget_counts_the_time_of_all_sessions():
    plan = make_plan(1, trials_per_arm=9, wall_clock_hours=1.0)
    log, clock = MemoryLog(), Clock(0.0)
    recorder = record(plan, log, clock=clock)
    first_attempt = recorder.ask()
    clock.now = 3000.0
    assert (
        recorder.record(first_attempt.trial_id, first_attempt.token, Reply(measurement=measurement_at(1)))
        == Continue()
    )
    recorder.close()
    clock.now = 90000.0
    recorder = record(plan, log, clock=clock)
    assert recorder.open_seconds() == 3000.0
    second = recorder.ask()
    clock.now += 599.0
    assert recorder.record(second.trial_id, second.token, Reply(measurement=measurement_at(2))) == Continue()
    clock.now += 1.0
    decision = recorder.record(second.trial_id, second.token, Reply(measurement=measurement_at(3)))
    assert decision.kind is OutcomeKind.STOPPED
    assert recorder.ask() is None
    recorder.close()
    assert [event.payload["reason"] for event in log.of(EventKind.CLOSED)] == ["interrupted", "budget"]
