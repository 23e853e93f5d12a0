"""Cross trials run each arm with the best params of the other on the confirm seeds."""

from dataclasses import replace

import pytest

from orchestrator.conductor.conductor import Conductor
from orchestrator.ledger.fold import records
from orchestrator.trials import Outcome, OutcomeKind
from search_spaces.dimensions import Dimension, Float, Space
from tests.support.processes.logs import MemoryLog, content, record
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.driving import run_in_turn
from tests.support.sweeps.repeated import repeated_plan
from trainables.protocol import Measurement

FINISHED = Outcome(OutcomeKind.FINISHED, "ran to its end")
CRASHED = Outcome(OutcomeKind.CRASHED, "broke")


def score_of(trial):
    """Return a score that makes the arms choose different params."""
    x = trial.settings["model"]["x"]
    return x if trial.planned.arm == "arm-0" else -x


def run_all(plan, outcome_of=lambda trial: FINISHED):
    """Return the conductor and all trials in the order of their start."""
    conductor, trials = Conductor(plan), []
    while (trial := conductor.next_trial()) is not None:
        metrics = {"valid/score": score_of(trial), "test/score": 0.0}
        conductor.report(trial.trial_id, Measurement(1, 1.0, metrics))
        conductor.record_end(trial.trial_id, outcome_of(trial))
        trials.append(trial)
    return conductor, trials


def select_trials(trials, arm, phase, repeat=0):
    return [
        trial
        for trial in trials
        if (trial.planned.arm, trial.planned.phase, trial.planned.repeat) == (arm, phase, repeat)
    ]


def test_each_arm_runs_with_the_params_of_the_other_arm_on_the_same_seeds():
    conductor, trials = run_all(repeated_plan(2, cross=True))
    assert conductor.is_finished
    for repeat in range(2):
        best_params = {
            arm: select_trials(trials, arm, "confirm", repeat)[0].assignment for arm in ("arm-0", "arm-1")
        }
        assert best_params["arm-0"] != best_params["arm-1"]
        for arm, other_arm in (("arm-0", "arm-1"), ("arm-1", "arm-0")):
            cross_trials = select_trials(trials, arm, "cross", repeat)
            assert [trial.assignment for trial in cross_trials] == [best_params[other_arm]] * 2
            assert {trial.planned.settings_of for trial in cross_trials} == {other_arm}
            seeds = [trial.planned.seed for trial in select_trials(trials, arm, "confirm", repeat)]
            assert [trial.planned.seed for trial in cross_trials] == seeds
            assert all(trial.splits == ("test",) for trial in cross_trials)


def test_cross_trials_keep_fields_that_only_one_arm_searches():
    wide_space = Space((Dimension("model.x", Float(0.0, 1.0)), Dimension("model.shift", Float(0.0, 1.0))))
    plan = make_plan([make_arm("arm-0"), replace(make_arm("arm-1", wide_space), reference="arm-0")])
    confirm = replace(plan.confirm, cross=True)
    cross_plan = repeated_plan(1, cross=True)
    cross_trials = [trial for trial in cross_plan.trials if trial.phase == "cross"]
    _, trials = run_all(replace(plan, confirm=confirm, trials=(*plan.trials, *cross_trials)))
    baseline_params = select_trials(trials, "arm-0", "confirm")[0].assignment
    arm_params = select_trials(trials, "arm-1", "confirm")[0].assignment
    assert select_trials(trials, "arm-1", "cross")[0].assignment == {
        **arm_params,
        "model.x": baseline_params["model.x"],
    }
    assert select_trials(trials, "arm-0", "cross")[0].assignment == {"model.x": arm_params["model.x"]}


def test_failed_search_makes_its_cross_trials_unrunnable():
    def outcome_of(trial):
        is_failed = (trial.planned.arm, trial.planned.phase) == ("arm-1", "search")
        return CRASHED if is_failed else FINISHED

    conductor, trials = run_all(repeated_plan(1, others=2, cross=True), outcome_of)
    assert conductor.is_finished
    assert {
        (trial.planned.arm, trial.planned.settings_of) for trial in trials if trial.planned.settings_of
    } == {("arm-0", "arm-2"), ("arm-2", "arm-0")}
    unrunnable_trials = [trial.planned for trial, _ in conductor.take_unrunnable()]
    unrunnable_pairs = {
        (crossing.arm, crossing.settings_of) for crossing in unrunnable_trials if crossing.phase == "cross"
    }
    assert unrunnable_pairs == {("arm-0", "arm-1"), ("arm-1", "arm-0")}


@pytest.mark.parametrize("num_batches", [6, 21, 36])
def test_killed_sweep_continues_as_if_uninterrupted(num_batches):
    plan = repeated_plan(1, cross=True)
    complete_log = MemoryLog()
    run_in_turn(record(plan, complete_log))
    resumed_log = MemoryLog(complete_log.written[: complete_log.batches[num_batches]])
    run_in_turn(record(plan, resumed_log))
    assert content(resumed_log.written) == content(complete_log.written)
    assert {record.phase for record in records(resumed_log.written, plan)} == {"search", "confirm", "cross"}
