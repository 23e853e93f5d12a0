"""Repeated searches are independent, paired across arms and resumable."""

from collections import Counter

import pytest

from orchestrator.conductor.conductor import Conductor
from orchestrator.ledger.fold import records
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.processes.logs import MemoryLog, content, record
from tests.support.sweeps.driving import run_in_turn
from tests.support.sweeps.repeated import repeated_plan
from trainables.protocol import Measurement

ARMS = ("arm-0", "arm-1", "control-0")
FINISHED = Outcome(OutcomeKind.FINISHED, "ran to its end")


def run_all(plan):
    """Return all trials in the order of their start."""
    conductor, trials = Conductor(plan), []
    while (trial := conductor.next_trial()) is not None:
        metrics = {"valid/score": trial.settings["model"]["x"], "test/score": 0.0}
        conductor.report(trial.trial_id, Measurement(1, 1.0, metrics))
        conductor.record_end(trial.trial_id, FINISHED)
        trials.append(trial)
    assert conductor.is_finished
    return trials


def search_params(trials, arm, repeat):
    return [
        dict(trial.assignment)
        for trial in trials
        if (trial.planned.arm, trial.planned.repeat, trial.planned.phase) == (arm, repeat, "search")
    ]


def test_repeats_differ_and_are_paired_across_arms():
    plan = repeated_plan(3, controls=1, sampler="tpe")
    trials = run_all(plan)
    params_by_repeat = [search_params(trials, "arm-0", repeat) for repeat in range(3)]
    assert params_by_repeat == [search_params(trials, "arm-1", repeat) for repeat in range(3)]
    assert params_by_repeat[0] != params_by_repeat[1] != params_by_repeat[2] != params_by_repeat[0]
    assert all(search_params(trials, "control-0", repeat) != params_by_repeat[repeat] for repeat in range(3))
    seeds = {
        arm: [trial.seed for trial in plan.trials if (trial.arm, trial.phase) == (arm, "search")]
        for arm in ARMS
    }
    assert seeds["arm-0"] == seeds["arm-1"]
    assert not set(seeds["arm-0"]) & set(seeds["control-0"]), "a control would repeat the baseline"


def test_every_repeat_confirms_its_best_params_on_separate_seeds():
    trials = run_all(repeated_plan(3))
    for arm in ("arm-0", "arm-1"):
        for repeat in range(3):
            best_params = max(search_params(trials, arm, repeat), key=lambda params: params["model.x"])
            confirm_trials = [
                trial
                for trial in trials
                if (trial.planned.arm, trial.planned.repeat, trial.planned.phase) == (arm, repeat, "confirm")
            ]
            assert [trial.assignment for trial in confirm_trials] == [best_params, best_params]
    seeds = Counter(trial.planned.seed for trial in trials if trial.planned.phase == "confirm")
    assert len(seeds) == 6
    assert set(seeds.values()) == {2}, "the same seeds in both arms"


def test_repeats_run_in_order_without_waiting():
    plan = repeated_plan(2, others=0, trials_per_arm=2)
    conductor = Conductor(plan)
    running_trials = list(iter(conductor.next_trial, None))
    assert [trial.planned.repeat for trial in running_trials] == [0, 0, 1, 1]
    for trial in running_trials[:2]:
        conductor.report(trial.trial_id, Measurement(1, 1.0, {"valid/score": 0.5}))
        conductor.record_end(trial.trial_id, FINISHED)
    next_trial = conductor.next_trial()
    assert (next_trial.planned.phase, next_trial.planned.repeat) == ("confirm", 0)


@pytest.mark.parametrize("num_batches", [4, 25, 53])
def test_killed_sweep_continues_as_if_uninterrupted(num_batches):
    plan = repeated_plan(3, sampler="tpe", controls=1)
    complete_log = MemoryLog()
    run_in_turn(record(plan, complete_log))
    resumed_log = MemoryLog(complete_log.written[: complete_log.batches[num_batches]])
    run_in_turn(record(plan, resumed_log))
    assert content(resumed_log.written) == content(complete_log.written)
    assert {record.repeat for record in records(resumed_log.written, plan)} == {0, 1, 2}
