"""How much work is left: from what ended, from the rates of what runs, or not said."""

from dataclasses import replace

import pytest

from orchestrator.conductor.messages import Reply
from orchestrator.conductor.outlook import Outlook, PhaseWork, RunningTrial, remaining
from orchestrator.ledger.fold import records
from tests.support.processes.logs import Clock, MemoryLog, record
from tests.support.specs.plans import make_plan
from tests.support.sweeps.overviews import overview
from trainables.protocol import Measurement


def running(step=0, seconds=0.0, phase="search", arm="a"):
    return RunningTrial("t", arm, phase, 0, 1, 1000, step, seconds)


def work(phase="search", arm="a", **counts):
    return PhaseWork(arm, phase, **counts)


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (Outlook(), "nothing is known"),
        (Outlook((running(),), (work(waiting=3),)), "nothing was reported"),
        (Outlook((running(99, 1.0),), (work(waiting=3),)), "less than a tenth of its steps"),
        (Outlook((running(500, 1.0), running()), (work(waiting=3),)), "one of two has not reported"),
        (Outlook((), (work(waiting=3, ended=2, seconds=2.0),)), "two have ended"),
    ],
)
def test_without_ground_nothing_is_said(now, why):
    assert remaining(now) is None, why


def test_rates_are_ground_once_all_that_runs_has_one():
    left = remaining(Outlook((running(500, 10.0), running(250, 10.0)), (work(waiting=2),)))
    assert left is not None
    assert left.longest_s == pytest.approx(30.0)
    assert left.seconds == pytest.approx(10.0 + 30.0 + 2 * (20.0 + 40.0) / 2)
    assert left.ground == "from 2 running rates"


def test_trials_that_ended_are_ground_pruned_ones_as_short_as_they_were():
    searched = work(waiting=2, ended=4, seconds=40.0, finished=1, finished_s=25.0)
    left = remaining(Outlook((running(),), (searched,)))
    assert left is not None
    assert left.seconds == pytest.approx(3 * 10.0)
    assert left.ground == "from 4 ended trials"


def test_what_is_confirmed_takes_as_long_as_what_trained_to_the_end():
    phases = (
        work(ended=4, seconds=40.0, finished=1, finished_s=25.0),
        work("confirm", waiting=2),
        work(arm="b", ended=1, seconds=5.0, finished=1, finished_s=5.0),
        work("confirm", arm="b", waiting=1),
    )
    left = remaining(Outlook((), phases))
    assert left is not None
    assert left.seconds == pytest.approx(2 * 25.0 + 5.0)


def test_readings_are_not_counted_before_one_has_ended():
    phases = (work(ended=4, seconds=40.0, finished=4, finished_s=40.0), work("posthoc", waiting=6))
    left = remaining(Outlook((), phases))
    assert left is not None
    assert (left.seconds, left.unknown) == (0.0, 6)
    assert left.ground == "from 4 ended trials, not counting 6 trials of unknown duration"


def test_a_running_trial_is_watched_by_the_first_objective():
    plan, log = make_plan(1), MemoryLog()
    recorder = record(plan, log)
    attempt = recorder.ask()
    metrics = {"aa/first": 0.1, "valid/score": 0.75, "train/loss": 2.0}
    recorder.record(attempt.trial_id, attempt.token, Reply(measurement=Measurement(2, 4.0, metrics)))
    (seen,) = recorder.outlook().running
    assert (seen.step, seen.steps, seen.rate, seen.left_s) == (2, 4, 0.5, 4.0)
    assert (seen.metric, seen.value) == ("valid/score", 0.75)
    assert overview(plan, records(log.written, plan)).outlook(is_locked=True, now=0.0) == recorder.outlook()


def test_the_silence_of_a_trial_is_counted_from_its_newest_report():
    plan, log = make_plan(1), MemoryLog()
    clock = Clock(100.0)
    recorder = record(plan, log, clock=clock)
    attempt = recorder.ask()
    clock.now = 130.0
    assert [trial.silent_s for trial in recorder.outlook().running] == [30.0]
    recorder.record(
        attempt.trial_id, attempt.token, Reply(measurement=Measurement(1, 2.0, {"valid/score": 0.75}))
    )
    clock.now = 1030.0
    assert [trial.silent_s for trial in recorder.outlook().running] == [900.0]
    seen = overview(plan, records(log.written, plan)).outlook(is_locked=True, now=1030.0)
    assert [trial.silent_s for trial in seen.running] == [900.0]


def test_nobody_knows_what_a_step_of_own_code_is():
    plan, log = replace(make_plan(1, trials_per_arm=0), trainable="walk:Walk"), MemoryLog()
    recorder = record(plan, log)
    attempt = recorder.ask()
    recorder.record(attempt.trial_id, attempt.token, Reply(measurement=Measurement(2, 4.0, {"height": 1.0})))
    (seen,) = recorder.outlook().running
    assert (seen.steps, seen.left_s, seen.metric) == (None, None, "height")
