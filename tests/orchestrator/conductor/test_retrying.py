"""Retries reopen trials by the events of the log alone, equally from any prefix of the log."""

import pytest

from orchestrator.conductor.conductor import Conductor
from orchestrator.conductor.messages import Reply
from orchestrator.conductor.retrying import choose
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
    while (attempt := recorder.ask()) is not None:
        trial = attempt.trial.planned
        trial_ids.append(attempt.trial_id)
        if is_failing(trial):
            recorder.record(attempt.trial_id, attempt.token, Reply(ended=CRASHED))
            continue
        metrics = {"valid/score": score_of(trial), "test/score": score_of(trial)}
        measurement = Measurement(1, 1.0, metrics)
        recorder.record(attempt.trial_id, attempt.token, Reply(measurement, ended=FINISHED))
    return trial_ids


def retry_trials(recorder, make_plan_with_rounds, log, *selection):
    retry_choice = choose(make_plan_with_rounds, records(log.written, make_plan_with_rounds), selection)
    recorder.retry(retry_choice.trial_ids, lambda *_: True)
    return retry_choice


def select_ids(make_plan_with_rounds, phase, **fields):
    return [
        trial.trial_id
        for trial in make_plan_with_rounds.trials
        if trial.phase == phase and all(getattr(trial, name) == score_of for name, score_of in fields.items())
    ]


def replay_log(make_plan_with_rounds, log):
    """Return a conductor that has replayed the log."""
    conductor = Conductor(make_plan_with_rounds)
    for event in log.written:
        conductor.replay(event)
    return conductor


def test_posthoc_trials_run_after_the_retry_of_their_confirm_trial():
    make_plan_with_rounds, log = make_plan(1, trials_per_arm=0, posthoc=({"model.shift": 0.5},)), MemoryLog()
    run_all(record(make_plan_with_rounds, log), is_failing=lambda trial: trial.seed == 101)
    assert log.outcomes()[select_ids(make_plan_with_rounds, "posthoc", seed=101)[0]] is OutcomeKind.CRASHED
    recorder = record(make_plan_with_rounds, log)
    retry_choice = retry_trials(recorder, make_plan_with_rounds, log, "failed")
    assert list(retry_choice.trial_ids) == select_ids(make_plan_with_rounds, "confirm", seed=101)
    assert run_all(recorder) == [
        *select_ids(make_plan_with_rounds, "confirm", seed=101),
        *select_ids(make_plan_with_rounds, "posthoc", seed=101),
    ]
    assert set(log.outcomes().values()) == {OutcomeKind.FINISHED}
    trial_records = records(log.written, make_plan_with_rounds)
    assert len(trial_records) == len(make_plan_with_rounds.trials)
    assert [bool(record.retried) for record in trial_records if record.phase == "confirm"] == [True, False]
    assert replay_log(make_plan_with_rounds, log).finished


def test_failed_search_is_retried_and_then_confirmed():
    make_plan_with_rounds, log = make_plan(2, trials_per_arm=2), MemoryLog()
    run_all(record(make_plan_with_rounds, log), is_failing=lambda trial_plan: trial_plan.arm == "arm-0")
    assert log.outcomes()[select_ids(make_plan_with_rounds, "confirm", arm="arm-0")[0]] is OutcomeKind.CRASHED
    recorder = record(make_plan_with_rounds, log)
    retry_choice = retry_trials(recorder, make_plan_with_rounds, log, "failed")
    assert list(retry_choice.trial_ids) == select_ids(make_plan_with_rounds, "search", arm="arm-0")
    assert recorder.progress()[0].ended == 0
    started_ids = run_all(recorder, score_of=lambda trial_plan: float(trial_plan.number))
    assert started_ids == [
        *select_ids(make_plan_with_rounds, "search", arm="arm-0"),
        *select_ids(make_plan_with_rounds, "confirm", arm="arm-0"),
    ]
    best_record = next(
        record for record in records(log.written, make_plan_with_rounds) if record.trial_id == started_ids[1]
    )
    confirm_records = [
        record for record in records(log.written, make_plan_with_rounds) if record.trial_id in started_ids[2:]
    ]
    assert {tuple(record.assignment.items()) for record in confirm_records} == {
        tuple(best_record.assignment.items())
    }
    assert replay_log(make_plan_with_rounds, log).finished


def test_search_is_not_retried_after_its_confirmation_started():
    make_plan_with_rounds, log = make_plan(1, trials_per_arm=2), MemoryLog()
    run_all(
        record(make_plan_with_rounds, log),
        is_failing=lambda trial: trial.phase == "search" and trial.number == 0,
    )
    retry_choice = choose(make_plan_with_rounds, records(log.written, make_plan_with_rounds), ["failed"])
    assert retry_choice.trial_ids == ()
    assert len(retry_choice.left_out) == 1
    with pytest.raises(InputError, match="arm-0/search/0"):
        choose(
            make_plan_with_rounds,
            records(log.written, make_plan_with_rounds),
            [select_ids(make_plan_with_rounds, "search")[0]],
        )


@pytest.mark.parametrize(("selection", "num_retried"), [("failed", 0), ("diverged", 1)])
def test_diverged_trial_is_retried_only_by_name(selection, num_retried):
    make_plan_with_rounds, log = make_plan(1, trials_per_arm=0, seeds=(7,)), MemoryLog()
    recorder = record(make_plan_with_rounds, log)
    attempt = recorder.ask()
    recorder.record(attempt.trial_id, attempt.token, Reply(ended=Outcome(OutcomeKind.DIVERGED, "nan")))
    assert (
        len(choose(make_plan_with_rounds, records(log.written, make_plan_with_rounds), [selection]).trial_ids)
        == num_retried
    )


class TestRoundsOfSeeds:
    """Seeds run in rounds, and an arm with a verdict skips its remaining seeds."""

    SEEDS = tuple(range(101, 109))

    def make_plan_with_rounds(self, *names):
        answer = AnswerPlan(("test/score",), None, 0.05, 2)
        arms = [make_arm(name) for name in names]
        return make_plan(arms, trials_per_arm=0, seeds=self.SEEDS, answer=answer)

    def score_of(self, trial, shift=0.9):
        noise = 0.02 * ((trial.seed * 7919 + sum(map(ord, trial.arm)) * trial.seed) % 13) / 13
        return noise + (shift if trial.arm == "far" else 0.0)

    def test_retried_seed_repeats_its_look(self):
        """The retry reopens the verdict of another arm, and the new look decides equally."""
        make_plan_with_rounds, log = self.make_plan_with_rounds("base", "far", "near"), MemoryLog()
        failing_ids = select_ids(make_plan_with_rounds, "confirm", arm="near", seed=101)
        run_all(
            record(make_plan_with_rounds, log), lambda trial: trial.trial_id in failing_ids, self.score_of
        )
        skipped_ids = [trial_id for trial_id, kind in log.outcomes().items() if kind is OutcomeKind.SKIPPED]
        assert set(skipped_ids) < set(select_ids(make_plan_with_rounds, "confirm", arm="far"))
        assert skipped_ids
        recorder = record(make_plan_with_rounds, log)
        retry_trials(recorder, make_plan_with_rounds, log, "failed")
        reopened_ids = [event.trial_id for event in log.of(EventKind.RETRIED) if "cause" in event.payload]
        assert reopened_ids == skipped_ids
        assert run_all(recorder, score_of=self.score_of) == failing_ids
        assert [
            trial_id for trial_id, kind in log.outcomes().items() if kind is OutcomeKind.SKIPPED
        ] == skipped_ids
        assert replay_log(make_plan_with_rounds, log).finished

    def test_retried_seed_outside_of_looks_changes_no_verdict(self):
        make_plan_with_rounds, log = self.make_plan_with_rounds("base", "far", "near"), MemoryLog()
        failing_ids = select_ids(make_plan_with_rounds, "confirm", arm="base", seed=108)
        recorder = record(make_plan_with_rounds, log)
        run_all(recorder, lambda trial: trial.trial_id in failing_ids, self.score_of)
        skipped_ids = [trial_id for trial_id, kind in log.outcomes().items() if kind is OutcomeKind.SKIPPED]
        recorder = record(make_plan_with_rounds, log)
        retry_trials(recorder, make_plan_with_rounds, log, "failed")
        assert run_all(recorder, score_of=self.score_of) == failing_ids
        assert [
            trial_id for trial_id, kind in log.outcomes().items() if kind is OutcomeKind.SKIPPED
        ] == skipped_ids


def test_retry_decides_equally_from_every_prefix_of_the_log():
    """A session that replays a prefix of the log starts the same trials as the first session."""
    make_plan_with_rounds, log = make_plan(2, trials_per_arm=2), MemoryLog()
    run_all(record(make_plan_with_rounds, log), is_failing=lambda trial_plan: trial_plan.arm == "arm-0")
    recorder = record(make_plan_with_rounds, log)
    retry_trials(recorder, make_plan_with_rounds, log, "failed")
    run_all(recorder, score_of=lambda trial_plan: float(trial_plan.number))
    for num_events in log.batches:
        prefix_log = MemoryLog(log.written[:num_events])
        run_all(
            record(make_plan_with_rounds, prefix_log), score_of=lambda trial_plan: float(trial_plan.number)
        )
        outcomes = prefix_log.outcomes()
        assert set(outcomes) == {trial.trial_id for trial in make_plan_with_rounds.trials}, num_events


def test_seeds_added_after_a_retried_search_run_once():
    make_plan_with_rounds, log = make_plan(1, trials_per_arm=2, seeds=(101, 102)), MemoryLog()
    run_all(record(make_plan_with_rounds, log), is_failing=lambda trial: trial.phase == "search")
    recorder = record(make_plan_with_rounds, log)
    retry_trials(recorder, make_plan_with_rounds, log, "failed")
    run_all(recorder)
    extended_plan = make_plan(1, trials_per_arm=2, seeds=(101, 102, 103))
    assert run_all(record(extended_plan, log)) == select_ids(extended_plan, "confirm", seed=103)
    assert set(log.outcomes().values()) == {OutcomeKind.FINISHED}
    assert replay_log(extended_plan, log).finished


def test_failed_replacement_of_an_infeasible_trial_is_retried():
    make_plan_with_rounds, log = make_plan(1, trials_per_arm=2), MemoryLog()
    recorder = record(make_plan_with_rounds, log)
    attempt = recorder.ask()
    outcome = Outcome(OutcomeKind.INFEASIBLE, "too large")
    recorder.record(attempt.trial_id, attempt.token, Reply(ended=outcome))
    run_all(recorder, is_failing=lambda trial: trial.phase == "search")
    recorder = record(make_plan_with_rounds, log)
    retry_choice = retry_trials(recorder, make_plan_with_rounds, log, "failed")
    assert len(retry_choice.trial_ids) == 2
    assert set(retry_choice.trial_ids) <= set(run_all(recorder))
    assert set(log.outcomes().values()) == {OutcomeKind.FINISHED, OutcomeKind.INFEASIBLE}
    assert replay_log(make_plan_with_rounds, log).finished
