"""The estimate of remaining work comes from ended trials or from the speed of running trials."""

import pytest

from orchestrator.conductor.messages import Reply
from orchestrator.conductor.outlook import PhaseWork, RemainingWork, RunningTrial, estimate_remaining
from orchestrator.ledger.fold import records
from tests.support.processes.logs import Clock, MemoryLog, record
from tests.support.specs.plans import make_plan
from tests.support.sweeps.overviews import overview
from trainables.protocol import Measurement


def make_running_trial(step=0, seconds=0.0, phase="search", arm="a"):
    return RunningTrial("t", arm, phase, 0, 1, 1000, step, seconds)


def make_phase_work(phase="search", arm="a", **counts):
    return PhaseWork(arm, phase, **counts)


@pytest.mark.parametrize(
    ("outlook", "reason"),
    [
        (
            RemainingWork((make_running_trial(99, 1.0),), (make_phase_work(num_waiting=3),)),
            "less than a tenth of its steps",
        ),
        (
            RemainingWork(
                (make_running_trial(500, 1.0), make_running_trial()), (make_phase_work(num_waiting=3),)
            ),
            "one of two has not reported",
        ),
        (RemainingWork((), (make_phase_work(num_waiting=3, ended=2, seconds=2.0),)), "two have ended"),
    ],
)
def test_remaining_work_without_evidence_is_unknown(outlook, reason):
    assert estimate_remaining(outlook) is None, reason


def test_speeds_of_all_running_trials_give_an_estimate():
    estimate = estimate_remaining(
        RemainingWork(
            (make_running_trial(500, 10.0), make_running_trial(250, 10.0)), (make_phase_work(num_waiting=2),)
        )
    )
    assert estimate.longest_s == pytest.approx(30.0)
    assert estimate.seconds == pytest.approx(10.0 + 30.0 + 2 * (20.0 + 40.0) / 2)
    assert " 2 " in estimate.basis


def test_ended_trials_give_an_estimate_with_pruned_durations():
    search_work = make_phase_work(num_waiting=2, ended=4, seconds=40.0, finished=1, finished_s=25.0)
    estimate = estimate_remaining(RemainingWork((make_running_trial(),), (search_work,)))
    assert estimate.seconds == pytest.approx(3 * 10.0)
    assert " 4 " in estimate.basis


def test_confirm_trials_take_as_long_as_finished_search_trials():
    phases = (
        make_phase_work(ended=4, seconds=40.0, finished=1, finished_s=25.0),
        make_phase_work("confirm", num_waiting=2),
        make_phase_work(arm="b", ended=1, seconds=5.0, finished=1, finished_s=5.0),
        make_phase_work("confirm", arm="b", num_waiting=1),
    )
    estimate = estimate_remaining(RemainingWork((), phases))
    assert estimate.seconds == pytest.approx(2 * 25.0 + 5.0)


def test_running_trial_shows_the_first_objective():
    plan, log = make_plan(1), MemoryLog()
    recorder = record(plan, log)
    attempt = recorder.next_attempt()
    metrics = {"aa/first": 0.1, "valid/score": 0.75, "train/loss": 2.0}
    recorder.record(attempt.trial_id, attempt.token, Reply(measurement=Measurement(2, 4.0, metrics)))
    (running_trial,) = recorder.outlook().running
    assert (running_trial.step, running_trial.steps, running_trial.rate, running_trial.left_s) == (
        2,
        4,
        0.5,
        4.0,
    )
    assert (running_trial.metric, running_trial.value) == ("valid/score", 0.75)
    assert overview(plan, records(log.written, plan)).outlook(is_locked=True, now=0.0) == recorder.outlook()


def test_silence_of_a_trial_starts_at_its_last_report():
    plan, log = make_plan(1), MemoryLog()
    clock = Clock(100.0)
    recorder = record(plan, log, clock=clock)
    attempt = recorder.next_attempt()
    clock.now = 130.0
    assert [trial.silent_s for trial in recorder.outlook().running] == [30.0]
    recorder.record(
        attempt.trial_id, attempt.token, Reply(measurement=Measurement(1, 2.0, {"valid/score": 0.75}))
    )
    clock.now = 1030.0
    assert [trial.silent_s for trial in recorder.outlook().running] == [900.0]
    ledger_outlook = overview(plan, records(log.written, plan)).outlook(is_locked=True, now=1030.0)
    assert [trial.silent_s for trial in ledger_outlook.running] == [900.0]
