"""What a retry opens again, decided from events alone: the same from any prefix of the log."""

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

DONE = Outcome(OutcomeKind.FINISHED, "ran to its end")
CRASHED = Outcome(OutcomeKind.CRASHED, "a mistake")


def drive(recorder, fails=lambda _: False, value=lambda _: 0.5):
    """Run all there is; returns the ids of trials that were started."""
    ran = []
    while (attempt := recorder.ask()) is not None:
        planned = attempt.trial.planned
        ran.append(attempt.trial_id)
        if fails(planned):
            recorder.record(attempt.trial_id, attempt.token, Reply(ended=CRASHED))
            continue
        found = {"valid/score": value(planned), "test/score": value(planned)}
        measured = Measurement(1, 1.0, found)
        recorder.record(attempt.trial_id, attempt.token, Reply(measured, ended=DONE))
    return ran


def retry(recorder, plan, log, *asked):
    chosen = choose(plan, records(log.written, plan), asked)
    recorder.retry(chosen.trial_ids, lambda *_: True)
    return chosen


def of(plan, phase, **wanted):
    return [
        trial.trial_id
        for trial in plan.trials
        if trial.phase == phase and all(getattr(trial, name) == value for name, value in wanted.items())
    ]


def replayed(plan, log):
    """A conductor that has heard the log."""
    conductor = Conductor(plan)
    for event in log.written:
        conductor.replay(event)
    return conductor


def test_posthoc_trials_run_once_their_confirmed_trial_has_finished_after_all():
    plan, log = make_plan(1, trials_per_arm=0, posthoc=({"model.shift": 0.5},)), MemoryLog()
    drive(record(plan, log), fails=lambda planned: planned.seed == 101)
    assert log.outcomes()[of(plan, "posthoc", seed=101)[0]] is OutcomeKind.CRASHED
    recorder = record(plan, log)
    chosen = retry(recorder, plan, log, "failed")
    assert list(chosen.trial_ids) == of(plan, "confirm", seed=101)
    assert drive(recorder) == [*of(plan, "confirm", seed=101), *of(plan, "posthoc", seed=101)]
    assert set(log.outcomes().values()) == {OutcomeKind.FINISHED}
    found = records(log.written, plan)
    assert len(found) == len(plan.trials)
    assert [bool(record.retried) for record in found if record.phase == "confirm"] == [True, False]
    assert replayed(plan, log).finished


def test_a_search_in_which_nothing_finished_is_repaired_and_then_confirmed():
    plan, log = make_plan(2, trials_per_arm=2), MemoryLog()
    drive(record(plan, log), fails=lambda planned: planned.arm == "arm-0")
    assert log.outcomes()[of(plan, "confirm", arm="arm-0")[0]] is OutcomeKind.CRASHED
    recorder = record(plan, log)
    chosen = retry(recorder, plan, log, "failed")
    assert list(chosen.trial_ids) == of(plan, "search", arm="arm-0")
    assert recorder.progress()[0].ended == 0
    ran = drive(recorder, value=lambda planned: float(planned.number))
    assert ran == [*of(plan, "search", arm="arm-0"), *of(plan, "confirm", arm="arm-0")]
    best = next(record for record in records(log.written, plan) if record.trial_id == ran[1])
    confirmed = [record for record in records(log.written, plan) if record.trial_id in ran[2:]]
    assert {tuple(trial.assignment.items()) for trial in confirmed} == {tuple(best.assignment.items())}
    assert replayed(plan, log).finished


def test_a_search_whose_winner_is_being_confirmed_stays_as_it_is():
    plan, log = make_plan(1, trials_per_arm=2), MemoryLog()
    drive(record(plan, log), fails=lambda planned: planned.phase == "search" and planned.number == 0)
    chosen = choose(plan, records(log.written, plan), ["failed"])
    assert chosen.trial_ids == ()
    assert len(chosen.left_out) == 1
    with pytest.raises(InputError, match="confirm trials of its winner have begun"):
        choose(plan, records(log.written, plan), [of(plan, "search")[0]])


@pytest.mark.parametrize(("asked", "kinds"), [("failed", 0), ("diverged", 1)])
def test_a_divergence_is_retried_only_where_it_is_named(asked, kinds):
    plan, log = make_plan(1, trials_per_arm=0, seeds=(7,)), MemoryLog()
    recorder = record(plan, log)
    attempt = recorder.ask()
    recorder.record(attempt.trial_id, attempt.token, Reply(ended=Outcome(OutcomeKind.DIVERGED, "nan")))
    assert len(choose(plan, records(log.written, plan), [asked]).trial_ids) == kinds


class TestDecided:
    """Seeds run in rounds, and arms that are decided at a look need no more of them."""

    SEEDS = tuple(range(101, 109))

    def plan(self, *names):
        answer = AnswerPlan(("test/score",), None, 0.05, 2)
        arms = [make_arm(name) for name in names]
        return make_plan(arms, trials_per_arm=0, seeds=self.SEEDS, answer=answer)

    def value(self, planned, shift=0.9):
        noise = 0.02 * ((planned.seed * 7919 + sum(map(ord, planned.arm)) * planned.seed) % 13) / 13
        return noise + (shift if planned.arm == "far" else 0.0)

    def test_a_look_is_taken_anew_once_a_seed_of_it_is_retried(self):
        """What the look had decided of another arm is open until then, and decided alike again."""
        plan, log = self.plan("base", "far", "near"), MemoryLog()
        failing = of(plan, "confirm", arm="near", seed=101)
        drive(record(plan, log), lambda planned: planned.trial_id in failing, self.value)
        skipped = [each for each, kind in log.outcomes().items() if kind is OutcomeKind.SKIPPED]
        assert set(skipped) < set(of(plan, "confirm", arm="far"))
        assert skipped
        recorder = record(plan, log)
        retry(recorder, plan, log, "failed")
        reopened = [event.trial_id for event in log.of(EventKind.RETRIED) if "cause" in event.payload]
        assert reopened == skipped
        assert drive(recorder, value=self.value) == failing
        assert [each for each, kind in log.outcomes().items() if kind is OutcomeKind.SKIPPED] == skipped
        assert replayed(plan, log).finished

    def test_a_seed_that_no_look_needed_changes_no_decision(self):
        plan, log = self.plan("base", "far", "near"), MemoryLog()
        failing = of(plan, "confirm", arm="base", seed=108)
        recorder = record(plan, log)
        drive(recorder, lambda planned: planned.trial_id in failing, self.value)
        skipped = [each for each, kind in log.outcomes().items() if kind is OutcomeKind.SKIPPED]
        recorder = record(plan, log)
        retry(recorder, plan, log, "failed")
        assert drive(recorder, value=self.value) == failing
        assert [each for each, kind in log.outcomes().items() if kind is OutcomeKind.SKIPPED] == skipped


def test_what_is_retried_is_judged_anew_from_every_prefix_of_the_log():
    """Whoever replays a part of the log hands out what the session that wrote it would have."""
    plan, log = make_plan(2, trials_per_arm=2), MemoryLog()
    drive(record(plan, log), fails=lambda planned: planned.arm == "arm-0")
    recorder = record(plan, log)
    retry(recorder, plan, log, "failed")
    drive(recorder, value=lambda planned: float(planned.number))
    for cut in log.batches:
        other = MemoryLog(log.written[:cut])
        drive(record(plan, other), value=lambda planned: float(planned.number))
        ended = other.outcomes()
        assert set(ended) == {trial.trial_id for trial in plan.trials}, cut


def test_seeds_added_after_a_repaired_search_run_once():
    plan, log = make_plan(1, trials_per_arm=2, seeds=(101, 102)), MemoryLog()
    drive(record(plan, log), fails=lambda planned: planned.phase == "search")
    recorder = record(plan, log)
    retry(recorder, plan, log, "failed")
    drive(recorder)
    more = make_plan(1, trials_per_arm=2, seeds=(101, 102, 103))
    assert drive(record(more, log)) == of(more, "confirm", seed=103)
    assert set(log.outcomes().values()) == {OutcomeKind.FINISHED}
    assert replayed(more, log).finished


def test_a_failed_trial_that_was_drawn_in_place_of_an_infeasible_one_is_retried():
    plan, log = make_plan(1, trials_per_arm=2), MemoryLog()
    recorder = record(plan, log)
    attempt = recorder.ask()
    outcome = Outcome(OutcomeKind.INFEASIBLE, "too large")
    recorder.record(attempt.trial_id, attempt.token, Reply(ended=outcome))
    drive(recorder, fails=lambda planned: planned.phase == "search")
    recorder = record(plan, log)
    chosen = retry(recorder, plan, log, "failed")
    assert len(chosen.trial_ids) == 2
    assert set(chosen.trial_ids) <= set(drive(recorder))
    assert set(log.outcomes().values()) == {OutcomeKind.FINISHED, OutcomeKind.INFEASIBLE}
    assert replayed(plan, log).finished
