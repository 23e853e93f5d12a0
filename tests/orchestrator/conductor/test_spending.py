"""Limits of searches and sweeps depend on measurements and ends in their order."""

import re

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

FINISHED = Outcome(OutcomeKind.FINISHED, "ran to its end")
MIN_LOSS = (Objective(metric="valid/loss", goal="min"),)


def limit_each_arm(**limits):
    return Limits(each_arm=ArmLimits(**limits))


def finish_trial(conductor, trial, seconds=1.0, **metrics):
    values = {name.replace("_", "/", 1): value for name, value in metrics.items()}
    conductor.report(trial.trial_id, Measurement(1, seconds, {"valid/score": 0.5, **values}))
    conductor.record_end(trial.trial_id, FINISHED)


def run_trials(conductor, **metric_lists):
    """Run one trial after another; trial i gets value i of each list."""
    places = []
    for values in zip(*metric_lists.values(), strict=True):
        trial = conductor.next_trial()
        places.append((trial.planned.arm, trial.planned.phase))
        finish_trial(conductor, trial, **dict(zip(metric_lists, values, strict=True)))
    return places


def skip_reasons(conductor):
    unrunnable = conductor.take_unrunnable()
    assert {outcome.kind for _, outcome in unrunnable} <= {OutcomeKind.SKIPPED}
    return [outcome.reason for _, outcome in unrunnable]


def test_target_ends_only_the_search_of_its_arm():
    conductor = Conductor(make_plan(2, trials_per_arm=3, seeds=(7,), limits=limit_each_arm(target=0.9)))
    run_trials(conductor, valid_score=[0.95, 0.2])
    (reason,) = set(skip_reasons(conductor))
    assert re.search("arm-0 .* 3 .*valid/score=0.95 .* 0.9", reason)
    next_trials = [conductor.next_trial() for _ in range(3)]
    assert sorted((trial.planned.arm, trial.planned.phase) for trial in next_trials) == [
        ("arm-0", "confirm"),
        *[("arm-1", "search")] * 2,
    ]


def test_target_of_a_minimised_objective_is_an_upper_bound():
    plan = make_plan(1, trials_per_arm=3, seeds=(), objectives=MIN_LOSS, limits=limit_each_arm(target=0.1))
    conductor = Conductor(plan)
    run_trials(conductor, valid_loss=[0.5])
    assert skip_reasons(conductor) == []
    run_trials(conductor, valid_loss=[0.05])
    assert len(skip_reasons(conductor)) == 1
    assert conductor.is_finished


def test_no_improvement_counts_trials_that_ended_since_the_best():
    plan = make_plan(1, trials_per_arm=9, seeds=(), limits=limit_each_arm(no_improvement=2))
    conductor = Conductor(plan)
    run_trials(conductor, valid_score=[0.1, 0.05, 0.3, 0.3])
    assert skip_reasons(conductor) == [], (
        "an equal value is no improvement, and one trial has ended since the best"
    )
    conductor.record_end(conductor.next_trial().trial_id, Outcome(OutcomeKind.DIVERGED, "nan"))
    reasons = skip_reasons(conductor)
    assert len(reasons) == 4
    assert re.search(r" 2 .*valid/score .*0\.3$", reasons[0])


def test_running_trials_continue_after_the_search_limit():
    plan = make_plan(1, trials_per_arm=4, seeds=(7,), limits=limit_each_arm(no_improvement=1))
    conductor = Conductor(plan)
    first_trial, second_trial, third_trial = (conductor.next_trial() for _ in range(3))
    finish_trial(conductor, first_trial, valid_score=0.5)
    finish_trial(conductor, second_trial, valid_score=0.4)
    assert len(skip_reasons(conductor)) == 1
    assert conductor.next_trial() is None, "no confirm trial starts while a search trial runs"
    finish_trial(conductor, third_trial, valid_score=0.9)
    assert conductor.next_trial().assignment == third_trial.assignment


def test_device_hours_are_work_times_devices():
    limits, resources = limit_each_arm(device_hours=1.0), Resources(gpus=0.5)
    conductor = Conductor(make_plan(2, trials_per_arm=9, seeds=(), resources=resources, limits=limits))
    places = run_trials(conductor, seconds=[3600.0] * 4)
    assert places == [("arm-0", "search"), ("arm-1", "search")] * 2
    assert conductor.is_finished
    reasons = skip_reasons(conductor)
    assert len(reasons) == 14
    assert "1 device hours" in reasons[0]


def test_flops_are_the_sum_of_reported_flops():
    conductor = Conductor(make_plan(1, trials_per_arm=5, seeds=(), limits=limit_each_arm(flops=25.0)))
    run_trials(conductor, train_flops=[10.0, 10.0, 10.0])
    assert ["25 FLOPs" in line for line in skip_reasons(conductor)] == [True] * 2


def test_trial_without_flops_crashes_under_a_flops_limit():
    conductor = Conductor(make_plan(1, limits=Limits(flops=1.0)))
    trial = conductor.next_trial()
    conductor.report(trial.trial_id, Measurement(1, 1.0, {"valid/score": 0.1}))
    outcome = conductor.validate_outcome(trial.trial_id, FINISHED)
    assert outcome.kind is OutcomeKind.CRASHED
    assert "train/flops" in outcome.reason


def test_device_hours_of_the_sweep_end_the_session():
    plan = make_plan(2, trials_per_arm=3, limits=Limits(device_hours=1.0))
    log = MemoryLog()
    recorder = record(plan, log)
    for _ in range(2):
        attempt = recorder.next_attempt()
        report = Measurement(1, 1900.0, {"valid/score": 0.1})
        recorder.record(attempt.trial_id, attempt.token, Reply(report))
        recorder.record(attempt.trial_id, attempt.token, Reply(ended=FINISHED))
    assert recorder.next_attempt() is None
    assert "1 device hours" in recorder.drain_reason
    recorder.close()
    assert log.of(EventKind.CLOSED)[0].payload["reason"] == "budget"


LIMITS = {
    "target": limit_each_arm(target=0.84),
    "no_improvement": limit_each_arm(no_improvement=2),
    "device_hours": limit_each_arm(device_hours=7 / 3600),
    "sweep": Limits(device_hours=30 / 3600),
}


def make_failing_arms():
    return [make_arm("sound"), make_arm("weak", fault="diverge", fault_at=4), make_arm("short", steps=2)]


@pytest.mark.parametrize("name", LIMITS)
def test_killed_session_continues_with_equal_decisions(name):
    plan = make_plan(
        make_failing_arms(), trials_per_arm=6, posthoc=({"model.shift": 0.5},), limits=LIMITS[name]
    )
    complete_log = MemoryLog()
    run_in_turn(record(plan, complete_log))
    kinds = set(complete_log.outcomes().values())
    assert OutcomeKind.SKIPPED in kinds or name == "sweep"
    # Each limit tests other transactions.
    for num_events in [0, *complete_log.batches][list(LIMITS).index(name) :: 8]:
        log = MemoryLog(complete_log.written[:num_events])
        run_in_turn(record(plan, log))
        assert content(log.written) == content(complete_log.written), f"cut after {num_events} events"
