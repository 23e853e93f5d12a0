"""Retries reopen trials by the events of the log alone, equally from any prefix of the log."""

import pytest

from orchestrator.conductor.conductor import Conductor
from orchestrator.conductor.messages import Reply
from orchestrator.conductor.retrying import choose_retries
from orchestrator.errors import InputError
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.fold import records
from orchestrator.plan.types import AnswerPlan
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.processes.logs import MemoryLog, record
from tests.support.specs.plans import make_arm, make_plan
from trainables.protocol import Measurement

FINISHED = Outcome(OutcomeKind.FINISHED, "ran to its end")
CRASHED = Outcome(OutcomeKind.CRASHED, "a mistake")


def run_all(recorder, is_failing=lambda _: False, score_of=lambda _: 0.5):
    """Run all trials and return the ids of the started trials."""
    trial_ids = []
    while (attempt := recorder.next_attempt()) is not None:
        trial = attempt.trial.planned
        trial_ids.append(attempt.trial_id)
        if is_failing(trial):
            recorder.record(attempt.trial_id, attempt.token, Reply(ended=CRASHED))
            continue
        metrics = {"valid/score": score_of(trial), "test/score": score_of(trial)}
        measurement = Measurement(1, 1.0, metrics)
        recorder.record(attempt.trial_id, attempt.token, Reply(measurement, ended=FINISHED))
    return trial_ids


def retry_trials(recorder, plan, log, *selection):
    retry_choice = choose_retries(plan, records(log.written, plan), selection)
    recorder.retry(retry_choice.trial_ids, lambda *_: True)
    return retry_choice


def select_ids(plan, phase, **fields):
    return [
        trial.trial_id
        for trial in plan.trials
        if trial.phase == phase and all(getattr(trial, name) == score_of for name, score_of in fields.items())
    ]


def replay_log(plan, log):
    """Return a conductor that has replayed the log."""
    conductor = Conductor(plan)
    for event in log.written:
        conductor.replay(event)
    return conductor


def test_posthoc_trials_run_after_the_retry_of_their_confirm_trial():
    plan, log = make_plan(1, trials_per_arm=0, posthoc=({"model.shift": 0.5},)), MemoryLog()
    run_all(record(plan, log), is_failing=lambda trial: trial.seed == 101)
    assert log.outcomes()[select_ids(plan, "posthoc", seed=101)[0]] is OutcomeKind.CRASHED
    recorder = record(plan, log)
    retry_choice = retry_trials(recorder, plan, log, "failed")
    assert list(retry_choice.trial_ids) == select_ids(plan, "confirm", seed=101)
    assert run_all(recorder) == [
        *select_ids(plan, "confirm", seed=101),
        *select_ids(plan, "posthoc", seed=101),
    ]
    assert set(log.outcomes().values()) == {OutcomeKind.FINISHED}
    trial_records = records(log.written, plan)
    assert len(trial_records) == len(plan.trials)
    assert [bool(record.retried_at) for record in trial_records if record.phase == "confirm"] == [True, False]
    assert replay_log(plan, log).is_finished


def test_failed_search_is_retried_and_then_confirmed():
    plan, log = make_plan(2, trials_per_arm=2), MemoryLog()
    run_all(record(plan, log), is_failing=lambda trial_plan: trial_plan.arm == "arm-0")
    assert log.outcomes()[select_ids(plan, "confirm", arm="arm-0")[0]] is OutcomeKind.CRASHED
    recorder = record(plan, log)
    retry_choice = retry_trials(recorder, plan, log, "failed")
    assert list(retry_choice.trial_ids) == select_ids(plan, "search", arm="arm-0")
    assert recorder.progress()[0].ended == 0
    started_ids = run_all(recorder, score_of=lambda trial_plan: float(trial_plan.number))
    assert started_ids == [
        *select_ids(plan, "search", arm="arm-0"),
        *select_ids(plan, "confirm", arm="arm-0"),
    ]
    best_record = next(record for record in records(log.written, plan) if record.trial_id == started_ids[1])
    confirm_records = [record for record in records(log.written, plan) if record.trial_id in started_ids[2:]]
    assert {tuple(record.assignment.items()) for record in confirm_records} == {
        tuple(best_record.assignment.items())
    }
    assert replay_log(plan, log).is_finished


def test_search_is_not_retried_after_its_confirmation_started():
    plan, log = make_plan(1, trials_per_arm=2), MemoryLog()
    run_all(record(plan, log), is_failing=lambda trial: trial.phase == "search" and trial.number == 0)
    retry_choice = choose_retries(plan, records(log.written, plan), ["failed"])
    assert retry_choice.trial_ids == ()
    assert len(retry_choice.skip_messages) == 1
    with pytest.raises(InputError, match="arm-0/search/0"):
        choose_retries(plan, records(log.written, plan), [select_ids(plan, "search")[0]])


@pytest.mark.parametrize(("selection", "num_retried"), [("failed", 0), ("diverged", 1)])
def test_diverged_trial_is_retried_only_by_name(selection, num_retried):
    plan, log = make_plan(1, trials_per_arm=0, seeds=(7,)), MemoryLog()
    recorder = record(plan, log)
    attempt = recorder.next_attempt()
    recorder.record(attempt.trial_id, attempt.token, Reply(ended=Outcome(OutcomeKind.DIVERGED, "nan")))
    assert len(choose_retries(plan, records(log.written, plan), [selection]).trial_ids) == num_retried


def test_retried_seed_repeats_its_look():
    """The retry reopens the verdict of another arm, and the new look decides equally."""
    answer, seeds = AnswerPlan(("test/score",), None, 0.05, 2), tuple(range(101, 109))

    def score_of(trial):
        noise = 0.02 * ((trial.seed * 7919 + sum(map(ord, trial.arm)) * trial.seed) % 13) / 13
        return noise + (0.9 if trial.arm == "far" else 0.0)

    plan, log = (
        make_plan(
            [make_arm(name) for name in ("base", "far", "near")], trials_per_arm=0, seeds=seeds, answer=answer
        ),
        MemoryLog(),
    )
    failing_ids = select_ids(plan, "confirm", arm="near", seed=101)
    run_all(record(plan, log), lambda trial: trial.trial_id in failing_ids, score_of)
    skipped_ids = [trial_id for trial_id, kind in log.outcomes().items() if kind is OutcomeKind.SKIPPED]
    assert set(skipped_ids) < set(select_ids(plan, "confirm", arm="far"))
    assert skipped_ids
    recorder = record(plan, log)
    retry_trials(recorder, plan, log, "failed")
    reopened_ids = [event.trial_id for event in log.of(EventKind.RETRIED) if "cause" in event.payload]
    assert reopened_ids == skipped_ids
    assert run_all(recorder, score_of=score_of) == failing_ids
    assert [
        trial_id for trial_id, kind in log.outcomes().items() if kind is OutcomeKind.SKIPPED
    ] == skipped_ids
    assert replay_log(plan, log).is_finished


def test_retry_decides_equally_from_prefixes_of_the_log():
    """A session that replays a prefix of the log starts the same trials as the first session."""
    plan, log = make_plan(2, trials_per_arm=2), MemoryLog()
    run_all(record(plan, log), is_failing=lambda trial_plan: trial_plan.arm == "arm-0")
    recorder = record(plan, log)
    retry_trials(recorder, plan, log, "failed")
    run_all(recorder, score_of=lambda trial_plan: float(trial_plan.number))
    for num_events in log.batches[::4]:
        prefix_log = MemoryLog(log.written[:num_events])
        run_all(record(plan, prefix_log), score_of=lambda trial_plan: float(trial_plan.number))
        outcomes = prefix_log.outcomes()
        assert set(outcomes) == {trial.trial_id for trial in plan.trials}, num_events
