"""The conductor without ledger and clock: order of trials, early stopping and confirmation."""

import re
from dataclasses import replace
from itertools import count

import pytest

from orchestrator.conductor import arm_search
from orchestrator.conductor.conductor import Conductor
from orchestrator.conductor.messages import Continue, Progress, Stop
from orchestrator.errors import StoreError
from orchestrator.ledger.events import end_event, measurement_event, params_event
from orchestrator.ledger.fold import records
from orchestrator.spec.section import Objective, Resources
from orchestrator.trials import Outcome, OutcomeKind
from search_spaces.dimensions import Choice, Constraint, Dimension, Space
from tests.support.specs.plans import LINE, make_arm, make_plan
from trainables.protocol import Measurement

FINISHED = Outcome(OutcomeKind.FINISHED, "ran to its end")
CRASHED = Outcome(OutcomeKind.CRASHED, "KeyError")
STOPPED = Outcome(OutcomeKind.STOPPED, "interrupted")


def make_report(value, step=1, seconds=1.0, **metrics):
    return Measurement(step, seconds, {"valid/score": value, **metrics})


def finish_trial(conductor, trial, value=0.5):
    conductor.report(trial.trial_id, make_report(value))
    conductor.record_end(trial.trial_id, FINISHED)


def next_trials(conductor):
    return list(iter(conductor.next_trial, None))


def trial_places(trials):
    return [(trial.planned.arm, trial.planned.phase, trial.planned.number) for trial in trials]


def test_every_confirm_seed_has_data_that_all_arms_share():
    arms = [make_arm("first"), make_arm("second")]
    task = {"name": "synthetic", "data_seed": 3}
    arms = [replace(arm, settings={**arm.settings, "task": task}) for arm in arms]
    plan = make_plan(arms, trials_per_arm=1, seeds=(7, 8), posthoc=({"model.shift": 0.5},))
    conductor = Conductor(replace(plan, confirm=replace(plan.confirm, resample_data=True)))
    data_seeds = {}
    while (trial := conductor.next_trial()) is not None:
        finish_trial(conductor, trial)
        planned_trial = trial.planned
        data_seeds[planned_trial.arm, planned_trial.phase, planned_trial.seed] = trial.settings["task"][
            "data_seed"
        ]
    assert {data_seed for (_, phase, _), data_seed in data_seeds.items() if phase == "search"} == {3}
    later_phases = [(arm.name, phase) for arm in arms for phase in ("confirm", "posthoc")]
    by_seed = {seed: {data_seeds[*phase, seed] for phase in later_phases} for seed in (7, 8)}
    assert [len(values) for values in by_seed.values()] == [1, 1], "equal in all arms and re-evaluations"
    assert by_seed[7] != by_seed[8]


def test_best_params_are_confirmed_on_paired_seeds():
    conductor = Conductor(make_plan(2, trials_per_arm=3, seeds=(7, 8)))
    trials = next_trials(conductor)
    for trial, value in zip(trials, [1.0, 6.0, 3.0, 2.0, 2.0, 5.0], strict=True):
        finish_trial(conductor, trial, value)
    confirm_trials = next_trials(conductor)
    assert [trial.planned.seed for trial in confirm_trials] == [7, 7, 8, 8]
    best_params = {"arm-0": trials[2].assignment, "arm-1": trials[1].assignment}
    for trial in confirm_trials:
        assert trial.assignment == best_params[trial.planned.arm]
        assert trial.settings["model"]["x"] == trial.assignment["model.x"]
        assert trial.splits == ("test",)
    assert all(not trial.splits for trial in trials)


def test_several_best_params_are_confirmed_by_rank():
    conductor = Conductor(make_plan(1, trials_per_arm=3, best=2, seeds=(7, 8)))
    trials = next_trials(conductor)
    for trial, value in zip(trials, [1.0, 3.0, 2.0], strict=True):
        finish_trial(conductor, trial, value)
    ranked_params = [(trial.planned.rank, trial.assignment) for trial in next_trials(conductor)]
    first_params, second_params = trials[1].assignment, trials[2].assignment
    assert ranked_params == [(0, first_params), (0, first_params), (1, second_params), (1, second_params)]


def test_confirmed_trial_is_re_evaluated_under_each_override():
    overrides = ({"model.shift": 0.1}, {"model.shift": 0.2})
    conductor = Conductor(make_plan(1, trials_per_arm=1, seeds=(7, 8), posthoc=overrides))
    finish_trial(conductor, conductor.next_trial())
    first_trial, second_trial = next_trials(conductor)
    finish_trial(conductor, second_trial)
    reevaluations = next_trials(conductor)
    assert [reevaluation.source_id for reevaluation in reevaluations] == [second_trial.trial_id] * 2
    assert [reevaluation.settings["model"]["shift"] for reevaluation in reevaluations] == [0.1, 0.2]
    assert [reevaluation.planned.seed for reevaluation in reevaluations] == [8, 8]
    assert {reevaluation.settings["model"]["x"] for reevaluation in reevaluations} == {
        second_trial.settings["model"]["x"]
    }
    finish_trial(conductor, first_trial)
    assert [trial.source_id for trial in next_trials(conductor)] == [first_trial.trial_id] * 2


def test_arms_without_a_search_are_confirmed_with_their_settings():
    conductor = Conductor(make_plan(2, trials_per_arm=0, seeds=(7,)))
    trials = next_trials(conductor)
    assert trial_places(trials) == [("arm-0", "confirm", 0), ("arm-1", "confirm", 0)]
    assert [(dict(trial.assignment), trial.settings["model"]["x"]) for trial in trials] == [({}, 0.5)] * 2


def test_objective_reported_as_a_text_is_refused():
    conductor = Conductor(make_plan(1, trials_per_arm=1))
    report = replace(make_report(0.5), metrics={"valid/loss": 1.0}, attributes={"valid/score": "0.5"})
    stop = conductor.report(conductor.next_trial().trial_id, report)
    assert stop.kind is OutcomeKind.CRASHED
    assert "'0.5' at step 1" in stop.reason


def test_stopped_trial_is_the_next_trial():
    conductor = Conductor(make_plan(2, trials_per_arm=3))
    first_trial, second_trial = conductor.next_trial(), conductor.next_trial()
    conductor.record_end(second_trial.trial_id, STOPPED)
    conductor.record_end(first_trial.trial_id, STOPPED)
    assert [conductor.next_trial(), conductor.next_trial()] == [second_trial, first_trial]
    assert trial_places([conductor.next_trial()]) == [("arm-0", "search", 1)]


@pytest.mark.parametrize("kind", [OutcomeKind.DIVERGED, OutcomeKind.PRUNED])
def test_only_finished_trials_are_confirmed(kind):
    conductor = Conductor(make_plan(1, trials_per_arm=2, seeds=(7,), stopper={"name": "median"}))
    unfinished_trial, finished_trial = next_trials(conductor)
    conductor.report(unfinished_trial.trial_id, make_report(99.0))
    conductor.record_end(unfinished_trial.trial_id, Outcome(kind, "for a reason"))
    finish_trial(conductor, finished_trial, 0.0)
    assert next_trials(conductor)[0].assignment == finished_trial.assignment


def test_failed_search_makes_only_its_later_trials_unrunnable():
    plan = make_plan(2, trials_per_arm=1, seeds=(7, 8), posthoc=({"model.shift": 1.0},))
    conductor = Conductor(plan)
    first_trial, second_trial = next_trials(conductor)
    conductor.record_end(first_trial.trial_id, Outcome(OutcomeKind.DIVERGED, "nan"))
    unrunnable = conductor.take_unrunnable()
    phases = [(trial.planned.phase, trial.planned.arm) for trial, _ in unrunnable]
    assert sorted(phases) == [("confirm", "arm-0")] * 2 + [("posthoc", "arm-0")] * 2
    reasons = {trial.planned.phase: outcome.reason for trial, outcome in unrunnable}
    assert re.search("'arm-0' .*1 diverged", reasons["confirm"])
    assert "crashed" in reasons["posthoc"]
    assert {outcome.kind for _, outcome in unrunnable} == {OutcomeKind.CRASHED}
    assert conductor.take_unrunnable() == []
    finish_trial(conductor, second_trial)
    assert trial_places(next_trials(conductor)) == [("arm-1", "confirm", 0), ("arm-1", "confirm", 1)]


def test_unsatisfiable_space_makes_its_search_unrunnable(monkeypatch):
    monkeypatch.setattr(arm_search, "MAX_DRAWS", 5)
    space = Space(LINE.dimensions, (Constraint("model.x", ">", 2),))
    conductor = Conductor(make_plan([make_arm("none", space), make_arm("some")], trials_per_arm=2, seeds=()))
    assert trial_places(next_trials(conductor)) == [("some", "search", 0), ("some", "search", 1)]
    assert ["'none'" in outcome.reason for _, outcome in conductor.take_unrunnable()] == [True] * 2


INFEASIBLE = Outcome(OutcomeKind.INFEASIBLE, "the model does not fit")


def end_infeasible(conductor, trial):
    outcome = conductor.validate_outcome(trial.trial_id, INFEASIBLE)
    conductor.record_end(trial.trial_id, outcome)
    return outcome


def test_infeasible_trial_is_replaced():
    plan = make_plan(1, trials_per_arm=2, seeds=(7,))
    conductor = Conductor(plan)
    first_trial, second_trial = next_trials(conductor)
    assert end_infeasible(conductor, first_trial) == INFEASIBLE
    third_trial = conductor.next_trial()
    assert trial_places([third_trial]) == [("arm-0", "search", 2)]
    assert third_trial.trial_id not in {trial.trial_id for trial in plan.trials}
    (progress,) = conductor.progress()
    assert (progress.planned, progress.ended, progress.infeasible, progress.failed) == (3, 0, 1, 0)
    finish_trial(conductor, second_trial, 0.1)
    assert conductor.next_trial() is None
    finish_trial(conductor, third_trial, 0.9)
    confirm_trial = conductor.next_trial()
    assert (confirm_trial.planned.phase, confirm_trial.assignment) == ("confirm", third_trial.assignment)
    finish_trial(conductor, confirm_trial)
    assert conductor.is_finished


def test_search_with_only_infeasible_params_ends_with_a_reason():
    conductor = Conductor(make_plan(1, trials_per_arm=2, seeds=(7,)))
    num_ended = 0
    while (trial := conductor.next_trial()) is not None:
        end_infeasible(conductor, trial)
        num_ended += 1
    assert num_ended == 20
    outcomes = [outcome for _, outcome in conductor.take_unrunnable()]
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.SKIPPED] * 2 + [OutcomeKind.CRASHED]
    assert re.search("20 .*infeasible.* 10 ", outcomes[0].reason)
    assert "20 infeasible" in outcomes[2].reason
    assert conductor.is_finished


def test_trial_over_its_time_limit_is_stopped():
    conductor = Conductor(make_plan(1, resources=Resources(minutes=1.0)))
    trial = conductor.next_trial()
    assert conductor.report(trial.trial_id, make_report(0.1, step=1, seconds=60.0)) == Continue()
    decision = conductor.report(trial.trial_id, make_report(0.1, step=2, seconds=75.0))
    assert decision.kind is OutcomeKind.TIMED_OUT
    assert re.search("1.2 of 1 .*step 2", decision.reason)


@pytest.mark.parametrize(("scope", "best_choice"), [("best", "overfits"), ("mean-of-last-2", "steady")])
def test_confirmed_params_follow_the_scope(scope, best_choice):
    space = Space((Dimension("model.x", Choice(("overfits", "steady"))),))
    plan = make_plan(
        [make_arm("arm", space)],
        trials_per_arm=2,
        sampler="grid",
        objectives=(Objective(metric="valid/score", goal="max", scope=scope),),
    )
    curves = {"overfits": (0.5, 0.9, 0.2), "steady": (0.5, 0.6, 0.7)}
    conductor, replayed_conductor, history = Conductor(plan), Conductor(plan), []
    for trial in next_trials(conductor):
        history.append(params_event(0.0, trial))
        for step, value in enumerate(curves[trial.assignment["model.x"]], start=1):
            conductor.report(trial.trial_id, make_report(value, step))
            history.append(measurement_event(0.0, trial.trial_id, make_report(value, step)))
        conductor.record_end(trial.trial_id, FINISHED)
        history.append(end_event(0.0, trial.trial_id, FINISHED))
    for event in history:
        replayed_conductor.replay(event)
    for current_conductor in (conductor, replayed_conductor):
        assert current_conductor.next_trial().assignment == {"model.x": best_choice}
    (progress,) = replayed_conductor.progress()
    assert progress.best == pytest.approx({"best": 0.9, "mean-of-last-2": 0.65}[scope])
    search_records = [record for record in records(history, plan) if record.phase == "search"]
    assert max(record.judged_by(["valid/score"]) for record in search_records) == (
        pytest.approx(progress.best),
    )


def test_confirm_trials_are_never_pruned():
    conductor = Conductor(make_plan(1, trials_per_arm=1, stopper={"name": "threshold", "upper": 0.0}))
    search_trial = conductor.next_trial()
    assert isinstance(conductor.report(search_trial.trial_id, make_report(1.0)), Stop)
    conductor.record_end(search_trial.trial_id, FINISHED)
    assert conductor.report(conductor.next_trial().trial_id, make_report(1.0)) == Continue()


def test_search_trial_without_its_objective_is_crashed():
    conductor = Conductor(make_plan(1))
    silent_trial, trial_without_objective = conductor.next_trial(), conductor.next_trial()
    assert "valid/score" in conductor.validate_outcome(silent_trial.trial_id, FINISHED).reason
    conductor.report(trial_without_objective.trial_id, Measurement(1, 1.0, {"train/loss": 1.0}))
    outcome = conductor.validate_outcome(trial_without_objective.trial_id, FINISHED)
    assert outcome.kind is OutcomeKind.CRASHED
    assert re.search(r"valid/score, got train/loss.*search\.objectives", outcome.reason)


def test_progress_counts_every_outcome():
    conductor = Conductor(make_plan(1, trials_per_arm=6, seeds=(7,), stopper={"name": "median"}))
    trials = next_trials(conductor)
    for trial, value in zip(trials, count(1)):
        conductor.report(trial.trial_id, make_report(float(value), seconds=10.0))
    conductor.record_end(trials[0].trial_id, FINISHED)
    conductor.record_end(trials[1].trial_id, FINISHED)
    conductor.record_end(trials[2].trial_id, Outcome(OutcomeKind.PRUNED, "behind"))
    conductor.record_end(trials[3].trial_id, Outcome(OutcomeKind.TIMED_OUT, "slow"))
    conductor.record_end(trials[4].trial_id, STOPPED)
    (progress,) = conductor.progress()
    assert progress == Progress(
        arm="arm-0", planned=7, running=1, finished=2, pruned=1, failed=1, best=2.0, seconds=60.0
    )
    assert progress.ended == 4


def test_ledger_of_another_plan_is_refused():
    foreign_trial = Conductor(make_plan(1, seed=5)).next_trial()
    with pytest.raises(StoreError, match=foreign_trial.trial_id):
        Conductor(make_plan(1)).replay(params_event(0.0, foreign_trial))


def test_identical_arms_get_equal_budgets_at_any_time():
    """No arm is ever more than one search trial ahead, however trials end."""
    arms = [
        make_arm(f"twin-{number}", Space((Dimension("model.x", Choice((0.1, 0.9))),))) for number in range(3)
    ]
    conductor = Conductor(make_plan(arms, trials_per_arm=5, seeds=()))
    num_trials = dict.fromkeys((arm.name for arm in arms), 0)
    for number, trial in enumerate(iter(conductor.next_trial, None)):
        num_trials[trial.planned.arm] += 1
        assert max(num_trials.values()) - min(num_trials.values()) <= 1
        conductor.record_end(trial.trial_id, CRASHED) if number % 4 else finish_trial(conductor, trial)
    assert set(num_trials.values()) == {5}
