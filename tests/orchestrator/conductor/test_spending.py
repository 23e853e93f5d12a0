"""When a search, or a sweep, has used what it may: decided by measurements and ends, in their order."""

import pytest

from orchestrator.conductor.conductor import Conductor
from orchestrator.conductor.messages import Reply
from orchestrator.ledger.events import EventKind
from orchestrator.plan.types import ArmLimits, Limits
from orchestrator.spec.section import Objective, Resources
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.processes.logs import MemoryLog, content, record
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.driving import run_in_turn
from trainables.protocol import Measurement

DONE = Outcome(OutcomeKind.FINISHED, "ran to its end")
MIN_LOSS = (Objective(metric="valid/loss", goal="min"),)


def each_arm(**limits):
    return Limits(each_arm=ArmLimits(**limits))


def finish(conductor, trial, seconds=1.0, **metrics):
    named = {name.replace("_", "/", 1): value for name, value in metrics.items()}
    conductor.report(trial.trial_id, Measurement(1, seconds, {"valid/score": 0.5, **named}))
    conductor.record_end(trial.trial_id, DONE)


def run(conductor, **each):
    """Ask and finish one trial after the other; the i-th gets the i-th value of each list."""
    asked = []
    for values in zip(*each.values(), strict=True):
        trial = conductor.next_trial()
        asked.append((trial.planned.arm, trial.planned.phase))
        finish(conductor, trial, **dict(zip(each, values, strict=True)))
    return asked


def skipped(conductor):
    found = conductor.take_unrunnable()
    assert {outcome.kind for _, outcome in found} <= {OutcomeKind.SKIPPED}
    return [outcome.reason for _, outcome in found]


def test_a_target_ends_the_search_of_its_arm_alone():
    conductor = Conductor(make_plan(2, trials_per_arm=3, seeds=(7,), limits=each_arm(target=0.9)))
    run(conductor, valid_score=[0.95, 0.2])
    shown = "the search of arm-0 ended before its 3 trials had begun: valid/score=0.95 has reached the target"
    assert skipped(conductor) == [f"{shown} of 0.9"] * 2
    ahead = [conductor.next_trial() for _ in range(3)]
    assert sorted((trial.planned.arm, trial.planned.phase) for trial in ahead) == [
        ("arm-0", "confirm"),
        *[("arm-1", "search")] * 2,
    ]


def test_a_target_of_a_minimum_is_reached_from_above():
    plan = make_plan(1, trials_per_arm=3, seeds=(), objectives=MIN_LOSS, limits=each_arm(target=0.1))
    conductor = Conductor(plan)
    run(conductor, valid_loss=[0.5])
    assert skipped(conductor) == []
    run(conductor, valid_loss=[0.05])
    assert len(skipped(conductor)) == 1
    assert conductor.finished


def test_no_improvement_counts_trials_that_ended_since_the_best():
    plan = make_plan(1, trials_per_arm=9, seeds=(), limits=each_arm(no_improvement=2))
    conductor = Conductor(plan)
    run(conductor, valid_score=[0.1, 0.05, 0.3, 0.3])
    assert skipped(conductor) == [], "an equal value is no better one, and only one trial has ended since"
    conductor.record_end(conductor.next_trial().trial_id, Outcome(OutcomeKind.DIVERGED, "nan"))
    shown = skipped(conductor)
    assert len(shown) == 4
    assert shown[0].endswith("2 trials in a row ended without a better valid/score than 0.3")


def test_what_runs_when_the_search_is_over_goes_on_and_may_win():
    plan = make_plan(1, trials_per_arm=4, seeds=(7,), limits=each_arm(no_improvement=1))
    conductor = Conductor(plan)
    first, second, third = (conductor.next_trial() for _ in range(3))
    finish(conductor, first, valid_score=0.5)
    finish(conductor, second, valid_score=0.4)
    assert len(skipped(conductor)) == 1
    assert conductor.next_trial() is None, "nothing is confirmed while a search trial runs"
    finish(conductor, third, valid_score=0.9)
    assert conductor.next_trial().assignment == third.assignment


def test_a_search_goes_on_until_there_is_what_is_to_be_confirmed():
    plan = make_plan(1, trials_per_arm=4, best=2, seeds=(7,), limits=each_arm(target=0.1))
    conductor = Conductor(plan)
    run(conductor, valid_score=[0.9])
    assert skipped(conductor) == []
    run(conductor, valid_score=[0.8])
    assert len(skipped(conductor)) == 2


@pytest.mark.parametrize(("resources", "hours"), [(Resources(cpus=2), 2), (Resources(gpus=0.5), 0.5)])
def test_device_hours_are_work_times_devices_and_equal_between_arms(resources, hours):
    limits = each_arm(device_hours=2 * hours)
    conductor = Conductor(make_plan(2, trials_per_arm=9, seeds=(), resources=resources, limits=limits))
    asked = run(conductor, seconds=[3600.0] * 4)
    assert asked == [("arm-0", "search"), ("arm-1", "search")] * 2
    assert conductor.finished
    shown = skipped(conductor)
    assert len(shown) == 14
    assert shown[0].endswith(f"{2 * hours:g} device hours are used up")


def test_device_hours_are_noticed_while_a_trial_runs():
    plan = make_plan(1, trials_per_arm=3, seeds=(), limits=each_arm(device_hours=1.0))
    conductor = Conductor(plan)
    trial = conductor.next_trial()
    for step in range(1, 5):
        conductor.report(trial.trial_id, Measurement(step, step * 1200.0, {"valid/score": 0.1}))
    assert len(skipped(conductor)) == 2
    assert conductor.next_trial() is None


def test_flops_are_those_that_trials_report():
    conductor = Conductor(make_plan(1, trials_per_arm=5, seeds=(), limits=each_arm(flops=25.0)))
    run(conductor, train_flops=[10.0, 10.0, 10.0])
    assert [line.rpartition(": ")[2] for line in skipped(conductor)] == [
        "25 FLOPs of training are used up"
    ] * 2


def test_a_trial_that_does_not_say_its_flops_has_crashed_where_they_are_limited():
    conductor = Conductor(make_plan(1, limits=Limits(flops=1.0)))
    trial = conductor.next_trial()
    conductor.report(trial.trial_id, Measurement(1, 1.0, {"valid/score": 0.1}))
    settled = conductor.judge_outcome(trial.trial_id, DONE)
    assert settled.kind is OutcomeKind.CRASHED
    assert "must report train/flops, and did not" in settled.reason


def test_the_sweeps_device_hours_end_everything_to_be_resumed():
    plan = make_plan(2, trials_per_arm=3, limits=Limits(device_hours=1.0))
    log = MemoryLog()
    recorder = record(plan, log)
    for _ in range(2):
        attempt = recorder.ask()
        report = Measurement(1, 1900.0, {"valid/score": 0.1})
        recorder.record(attempt.trial_id, attempt.token, Reply(report))
        recorder.record(attempt.trial_id, attempt.token, Reply(ended=DONE))
    assert recorder.ask() is None
    assert recorder.draining == "the budget of 1 device hours is used up"
    recorder.close()
    assert log.of(EventKind.CLOSED)[0].payload["reason"] == "budget"


LIMITS = {
    "target": each_arm(target=0.84),
    "no_improvement": each_arm(no_improvement=2),
    "device_hours": each_arm(device_hours=7 / 3600),
    "sweep": Limits(device_hours=30 / 3600),
}


def arms_that_fail():
    return [make_arm("sound"), make_arm("weak", fault="diverge", fault_at=4), make_arm("short", steps=2)]


@pytest.mark.parametrize("name", LIMITS)
def test_a_session_that_died_after_any_transaction_decides_the_same(name):
    plan = make_plan(arms_that_fail(), trials_per_arm=6, posthoc=({"model.shift": 0.5},), limits=LIMITS[name])
    whole = MemoryLog()
    run_in_turn(record(plan, whole))
    kinds = set(whole.outcomes().values())
    assert OutcomeKind.SKIPPED in kinds or name == "sweep"
    for cut in [0, *whole.batches][list(LIMITS).index(name) :: 4]:  # every one under one of the limits
        log = MemoryLog(whole.written[:cut])
        run_in_turn(record(plan, log))
        assert content(log.written) == content(whole.written), f"cut after {cut} events"
