"""The recorder writes the events of attempts, replies, ends and stops to the ledger."""

from dataclasses import replace

import pytest

from orchestrator.conductor.attempts import MAX_KILLS
from orchestrator.conductor.messages import Continue, Reply, Stop
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.fold import records
from orchestrator.spec.section import Resources
from orchestrator.trials import DeathCause, Outcome, OutcomeKind
from tests.support.processes.logs import Clock, MemoryLog, record
from tests.support.specs.plans import make_plan
from tests.support.sweeps.driving import DONE
from trainables.protocol import Job, Measurement

STOPPED = Outcome(OutcomeKind.STOPPED, "interrupted")
CRASH = Outcome(OutcomeKind.CRASHED, "KeyError")


def measurement_at(step, value=0.5, seconds=None):
    return Measurement(step, float(step) if seconds is None else seconds, {"valid/score": value})


LATE = measurement_at(1, seconds=90.0)
"""Measurement beyond the time limit of `start_limited`."""


def event_kinds(log, trial_id=None):
    return [event.kind.value for event in log.written if trial_id in {None, event.trial_id}]


def start(root=None, **plan_fields):
    """Start the first trial of a sweep with one arm."""
    log = MemoryLog()
    recorder = record(make_plan(1, **plan_fields), log, root=root)
    return log, recorder, recorder.next_attempt()


def start_limited():
    """Start a trial that may run for a minute."""
    return start(resources=Resources(minutes=1.0, retries=0))


def report(recorder, attempt, *reply, **reply_fields):
    return recorder.record(attempt.trial_id, attempt.token, Reply(*reply, **reply_fields))


def lose(recorder, trial_id, cause=DeathCause.TRIAL):
    """Record a death; return the kind of the outcome."""
    return recorder.record_death(trial_id, "SIGKILL", cause).kind


def test_attempt_is_written_before_it_starts():
    log, _, attempt = start()
    assert event_kinds(log, attempt.trial_id) == ["asked", "started"]
    assert log.batches == [1, 3]


def test_reply_is_one_transaction(tmp_path):
    log, recorder, attempt = start(tmp_path)
    count_before = len(log.batches)
    assert report(recorder, attempt, measurement_at(3), 3, DONE) == Continue()
    assert event_kinds(log, attempt.trial_id) == ["asked", "started", "measured", "checkpointed", "ended"]
    assert len(log.batches) == count_before + 1
    (checkpoint_event,) = log.of(EventKind.CHECKPOINTED)
    assert checkpoint_event.payload == {"step": 3, "path": f"checkpoints/{attempt.trial_id}/step-000000003"}


def test_data_digests_are_written_before_any_trial_and_are_in_every_record():
    log, plan = MemoryLog(), make_plan()
    recorder = record(plan, log)
    recorder.record_data({})
    recorder.record_data({"listops/train": "11aa"})
    recorder.next_attempt()
    assert event_kinds(log) == ["opened", "read", "asked", "started"]
    (trial_record,) = records(log.written, plan)
    assert trial_record.provenance["data"] == {"listops/train": "11aa"}


def test_examples_are_written_once_with_their_measurement(tmp_path):
    log, recorder, attempt = start(tmp_path)
    with_examples = Measurement(3, 3.0, {"valid/score": 0.5}, ({"number": 1},))
    report(recorder, attempt, with_examples)
    report(recorder, attempt, with_examples, 3, DONE)
    assert event_kinds(log, attempt.trial_id)[2:] == ["measured", "kept", "checkpointed", "ended"]
    (examples_event,) = log.of(EventKind.EXAMPLES)
    assert examples_event.payload == {"step": 3, "examples": [{"number": 1}]}


def test_grouped_replies_are_one_transaction_and_checkpoints_remain_until_its_end(tmp_path):
    log, recorder, attempt = start(tmp_path)
    count_before = len(log.batches)
    (attempt.checkpoints / "step-000000002").mkdir(parents=True)
    with recorder.transaction():
        for reply in ((measurement_at(1),), (measurement_at(2), 2), (measurement_at(3), None, DONE)):
            assert report(recorder, attempt, *reply) == Continue()
        assert len(log.batches) == count_before, "events must be written at the end of the group"
        assert attempt.checkpoints.exists(), "a crash at this moment needs the checkpoint"
    assert event_kinds(log)[3:] == ["measured", "measured", "checkpointed", "measured", "ended"]
    assert len(log.batches) == count_before + 1
    assert not attempt.checkpoints.exists()


def test_job_contains_the_arguments_of_the_workload(tmp_path):
    _, recorder, confirm = start(tmp_path, trials_per_arm=0, seeds=(7,), posthoc=({"model.shift": 1.0},))
    job = confirm.job(tmp_path / "data")
    assert job == Job(confirm.trial.settings, 7, "confirm", ("test",), tmp_path / "data", None)
    report(recorder, confirm, measurement_at(1), ended=DONE)
    folder = SweepFolder(tmp_path)
    posthoc = recorder.next_attempt()
    assert posthoc.checkpoints == folder.checkpoint(posthoc.trial_id)
    assert posthoc.job(tmp_path).source == folder.checkpoint(confirm.trial_id) / "step-000000001"


def test_repeated_steps_are_dropped():
    log, plan = MemoryLog(), make_plan(1)
    first_attempt = record(plan, log).next_attempt()
    recorder = record(plan, log)
    second = recorder.next_attempt()
    assert second.trial == first_attempt.trial
    for step, value in [(1, 0.1), (2, 0.2), (2, 9.0), (1, 9.0), (3, 0.3)]:
        assert report(recorder, second, measurement_at(step, value)) == Continue()
    payloads = [event.payload for event in log.of(EventKind.MEASURED)]
    measured = [(payload["step"], payload["metrics"]["valid/score"]) for payload in payloads]
    assert measured == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_superseded_attempt_is_stopped_and_writes_nothing():
    log, recorder, old_attempt = start()
    lose(recorder, old_attempt.trial_id)
    new_attempt = recorder.next_attempt()
    assert (new_attempt.trial, new_attempt.token) == (old_attempt.trial, old_attempt.token + 1)
    count_before = len(log.written)
    assert report(recorder, old_attempt, measurement_at(1), 1, DONE).kind is OutcomeKind.STOPPED
    assert len(log.written) == count_before


def test_lost_worker_that_reports_again_is_accepted_until_it_is_superseded():
    log, recorder, attempt = start()
    lose(recorder, attempt.trial_id)
    report(recorder, attempt, measurement_at(1), ended=DONE)
    assert log.outcomes() == {attempt.trial_id: OutcomeKind.FINISHED}
    assert recorder.next_attempt().trial_id != attempt.trial_id


def test_lost_worker_is_retried_until_its_trial_crashes():
    log, plan = MemoryLog(), make_plan(1, resources=Resources(retries=2))
    recorder = record(plan, log)
    trial_id = recorder.next_attempt().trial_id
    assert lose(recorder, trial_id) is OutcomeKind.STOPPED
    assert lose(recorder, trial_id) is OutcomeKind.STOPPED, "a repeated report must not count"
    recorder = record(plan, log)  # a new session keeps the count
    assert recorder.next_attempt().trial_id == trial_id
    assert lose(recorder, trial_id) is OutcomeKind.STOPPED
    assert recorder.next_attempt().token == 3
    assert lose(recorder, trial_id) is OutcomeKind.CRASHED
    assert log.outcomes() == {trial_id: OutcomeKind.CRASHED}


def test_repeatedly_killed_trial_starts_after_other_trials():
    recorder = record(make_plan(2, trials_per_arm=1, seeds=()), MemoryLog())
    killed = recorder.next_attempt()
    for _ in range(MAX_KILLS - 1):
        lose(recorder, killed.trial_id, DeathCause.OUTSIDE)
        assert recorder.next_attempt().trial_id == killed.trial_id
    lose(recorder, killed.trial_id, DeathCause.OUTSIDE)
    other_trial = recorder.next_attempt()
    assert other_trial.trial_id != killed.trial_id
    assert recorder.next_attempt() is None, "the killed trial must wait for the other trial"
    assert not recorder.drain_reason
    report(recorder, other_trial, measurement_at(1), ended=DONE)
    assert recorder.next_attempt().trial_id == killed.trial_id


def kill_only_trial(**plan_fields):
    """Kill the only trial of a sweep each time it starts; return recorder, log and plan."""
    log, plan = MemoryLog(), replace(make_plan(1, trials_per_arm=1, seeds=()), **plan_fields)
    recorder, count = record(plan, log), 0
    while (attempt := recorder.next_attempt()) is not None:
        lose(recorder, attempt.trial_id, DeathCause.OUTSIDE)
        count += 1
    assert count == MAX_KILLS
    return recorder, log, plan


def test_sweep_with_only_killed_trials_stops_and_can_be_resumed():
    recorder, log, plan = kill_only_trial(continue_on_error=False)
    assert recorder.drain_reason
    assert not recorder.is_finished
    recorder.close()
    (close_event,) = log.of(EventKind.CLOSED)
    (ask_event,) = log.of(EventKind.PARAMS_ASSIGNED)
    assert close_event.payload["reason"] == "error"
    assert ask_event.trial_id in close_event.payload["why"]
    assert log.outcomes() == {}
    new_recorder = record(plan, log)
    report(new_recorder, new_recorder.next_attempt(), measurement_at(1), ended=DONE)
    assert new_recorder.is_finished


def test_killed_trials_crash_if_the_sweep_continues_on_errors():
    recorder, log, _ = kill_only_trial(continue_on_error=True)
    assert recorder.is_finished
    assert list(log.outcomes().values()) == [OutcomeKind.CRASHED]


def test_interruptions_and_killed_sessions_do_not_count_as_losses():
    log, plan = MemoryLog(), make_plan(1, resources=Resources(retries=1))
    for _ in range(4):
        attempt = record(plan, log).next_attempt()
    recorder = record(plan, log)
    for _ in range(4):
        attempt = recorder.next_attempt()
        report(recorder, attempt, ended=STOPPED)
    assert recorder.next_attempt().token == 9
    assert lose(recorder, attempt.trial_id) is OutcomeKind.STOPPED
    assert log.outcomes() == {}


def test_pending_stop_of_a_dead_session_is_written_by_the_next():
    plan = make_plan(1, trials_per_arm=1, seeds=(7,), resources=Resources(minutes=1.0))
    log = MemoryLog()
    recorder = record(plan, log)
    attempt = recorder.next_attempt()
    assert isinstance(report(recorder, attempt, LATE), Stop)
    new_recorder = record(plan, log)
    assert log.outcomes()[attempt.trial_id] is OutcomeKind.TIMED_OUT
    assert new_recorder.is_finished, "without a winner, the confirm trial must be recorded as unrunnable"
    assert len(log.outcomes()) == len(plan.trials)


@pytest.mark.parametrize("is_lost", [True, False])
def test_pending_stop_survives_a_lost_worker_and_an_interruption(is_lost):
    log, recorder, attempt = start_limited()
    report(recorder, attempt, LATE)
    if is_lost:
        lose(recorder, attempt.trial_id)
    else:
        report(recorder, attempt, ended=STOPPED)
    assert log.outcomes() == {attempt.trial_id: OutcomeKind.TIMED_OUT}


def test_work_after_a_stop_decision_is_not_recorded():
    log, recorder, attempt = start_limited()
    decision = report(recorder, attempt, LATE)
    count_before = len(log.written)
    assert report(recorder, attempt, measurement_at(2), 2) == decision
    assert len(log.written) == count_before
    report(recorder, attempt, measurement_at(3), 3, DONE)
    assert event_kinds(log, attempt.trial_id) == ["asked", "started", "measured", "ended"]
    assert log.outcomes() == {attempt.trial_id: OutcomeKind.TIMED_OUT}


def test_trial_that_ends_with_its_last_report_before_a_stop_finishes():
    log, recorder, attempt = start_limited()
    report(recorder, attempt, LATE, 1, DONE)
    assert log.outcomes() == {attempt.trial_id: OutcomeKind.FINISHED}


def test_end_and_resulting_unrunnable_trials_are_one_transaction():
    log, recorder, attempt = start(trials_per_arm=1, seeds=(7,))
    report(recorder, attempt, ended=CRASH)
    assert recorder.is_finished
    assert len(log.outcomes()) == 2
    assert log.batches[-2:] == [3, 6], "an end and its consequences must be one transaction"


def test_budget_counts_the_time_of_all_sessions():
    plan = make_plan(1, trials_per_arm=9, wall_clock_hours=1.0)
    log, clock = MemoryLog(), Clock(0.0)
    recorder = record(plan, log, clock=clock)
    first_attempt = recorder.next_attempt()
    clock.now = 3000.0
    assert report(recorder, first_attempt, measurement_at(1)) == Continue()
    recorder.close()
    clock.now = 90000.0
    recorder = record(plan, log, clock=clock)
    assert recorder.open_seconds() == 3000.0
    second = recorder.next_attempt()
    clock.now += 599.0
    assert report(recorder, second, measurement_at(2)) == Continue()
    clock.now += 1.0
    assert report(recorder, second, measurement_at(3)).kind is OutcomeKind.STOPPED
    assert recorder.next_attempt() is None
    recorder.close()
    assert [event.payload["reason"] for event in log.of(EventKind.CLOSED)] == ["interrupted", "budget"]
