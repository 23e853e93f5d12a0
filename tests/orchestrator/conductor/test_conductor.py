"""What is handed out when, what stops, what is confirmed: no ledger, no clock."""

from dataclasses import replace
from itertools import count

import pytest

from orchestrator.conductor import arm_search
from orchestrator.conductor.conductor import Conductor
from orchestrator.conductor.messages import Continue, Progress, Stop
from orchestrator.errors import StoreError
from orchestrator.ledger.events import asked, ended, measured
from orchestrator.ledger.fold import records
from orchestrator.spec.section import Objective, Resources
from orchestrator.trials import Outcome, OutcomeKind, PlannedTrial
from search_spaces.dimensions import Choice, Constraint, Dimension, Space
from tests.support.specs.plans import LINE, make_arm, make_plan
from trainables.protocol import Measurement

DONE = Outcome(OutcomeKind.FINISHED, "ran to its end")
CRASH = Outcome(OutcomeKind.CRASHED, "KeyError")
STOPPED = Outcome(OutcomeKind.STOPPED, "interrupted")


def report(value, step=1, seconds=1.0, **others):
    return Measurement(step, seconds, {"valid/score": value, **others})


def finish(conductor, trial, value=0.5):
    conductor.report(trial.trial_id, report(value))
    conductor.record_end(trial.trial_id, DONE)


def ask_all(conductor):
    return list(iter(conductor.next_trial, None))


def names(trials):
    return [(trial.planned.arm, trial.planned.phase, trial.planned.number) for trial in trials]


def test_arms_take_turns_by_number():
    asked_for = names(ask_all(Conductor(make_plan(3, trials_per_arm=2))))
    assert asked_for == [(f"arm-{arm}", "search", number) for number in range(2) for arm in range(3)]


def test_every_confirm_seed_has_data_of_its_own_the_same_in_all_arms():
    arms = [make_arm("first"), make_arm("second")]
    task = {"name": "synthetic", "data_seed": 3}
    arms = [replace(arm, settings={**arm.settings, "task": task}) for arm in arms]
    plan = make_plan(arms, trials_per_arm=1, seeds=(7, 8), posthoc=({"model.shift": 0.5},))
    conductor = Conductor(replace(plan, confirm=replace(plan.confirm, resample_data=True)))
    drawn = {}
    while (trial := conductor.next_trial()) is not None:
        finish(conductor, trial)
        planned = trial.planned
        drawn[planned.arm, planned.phase, planned.seed] = trial.settings["task"]["data_seed"]
    assert {data for (_, phase, _), data in drawn.items() if phase == "search"} == {3}
    late = [(arm.name, phase) for arm in arms for phase in ("confirm", "posthoc")]
    by_seed = {seed: {drawn[*each, seed] for each in late} for seed in (7, 8)}
    assert [len(each) for each in by_seed.values()] == [1, 1], "the same in all arms and readings"
    assert by_seed[7] != by_seed[8]


def test_an_arm_is_confirmed_once_its_own_search_has_ended():
    conductor = Conductor(make_plan(2, trials_per_arm=2))
    trials = ask_all(conductor)
    mine = [trial for trial in trials if trial.planned.arm == "arm-1"]
    finish(conductor, mine[0])
    assert conductor.next_trial() is None
    finish(conductor, mine[1])
    assert names(ask_all(conductor)) == [("arm-1", "confirm", 0), ("arm-1", "confirm", 1)]


def test_the_best_assignment_is_confirmed_on_paired_seeds():
    conductor = Conductor(make_plan(2, trials_per_arm=3, seeds=(7, 8)))
    trials = ask_all(conductor)
    for trial, value in zip(trials, [1.0, 6.0, 3.0, 2.0, 2.0, 5.0], strict=True):
        finish(conductor, trial, value)
    confirmed = ask_all(conductor)
    assert [trial.planned.seed for trial in confirmed] == [7, 7, 8, 8]
    winners = {"arm-0": trials[2].assignment, "arm-1": trials[1].assignment}
    for trial in confirmed:
        assert trial.assignment == winners[trial.planned.arm]
        assert trial.settings["model"]["x"] == trial.assignment["model.x"]
        assert trial.splits == ("test",)
    assert all(not trial.splits for trial in trials)


def test_the_last_value_counts_not_the_best():
    conductor = Conductor(make_plan(1, trials_per_arm=2, seeds=(7,)))
    first, second = ask_all(conductor)
    conductor.report(first.trial_id, report(9.0, step=1))
    conductor.report(first.trial_id, report(1.0, step=2))
    conductor.record_end(first.trial_id, DONE)
    finish(conductor, second, 2.0)
    assert ask_all(conductor)[0].assignment == second.assignment


def test_several_winners_are_confirmed_by_rank():
    conductor = Conductor(make_plan(1, trials_per_arm=3, best=2, seeds=(7, 8)))
    trials = ask_all(conductor)
    for trial, value in zip(trials, [1.0, 3.0, 2.0], strict=True):
        finish(conductor, trial, value)
    found = [(trial.planned.rank, trial.assignment) for trial in ask_all(conductor)]
    first, second = trials[1].assignment, trials[2].assignment
    assert found == [(0, first), (0, first), (1, second), (1, second)]


def test_two_objectives_confirm_the_front_by_the_first():
    objectives = (Objective(metric="valid/score", goal="max"), Objective(metric="valid/cost", goal="min"))
    plan = make_plan(1, trials_per_arm=3, best=2, seeds=(7,), objectives=objectives, sampler="nsga2")
    conductor = Conductor(plan)
    trials = ask_all(conductor)
    for trial, value, cost in zip(trials, [3.0, 5.0, 4.0], [1.0, 9.0, 9.5], strict=True):
        assert conductor.report(trial.trial_id, report(value, **{"valid/cost": cost})) == Continue()
        conductor.record_end(trial.trial_id, DONE)
    assert [trial.assignment for trial in ask_all(conductor)] == [trials[1].assignment, trials[0].assignment]


def test_a_confirmed_trial_is_read_again_under_each_override():
    overrides = ({"model.shift": 0.1}, {"model.shift": 0.2})
    conductor = Conductor(make_plan(1, trials_per_arm=1, seeds=(7, 8), posthoc=overrides))
    finish(conductor, conductor.next_trial())
    first, second = ask_all(conductor)
    finish(conductor, second)
    posthoc_overrides = ask_all(conductor)
    assert [posthoc_override.source_id for posthoc_override in posthoc_overrides] == [second.trial_id] * 2
    assert [posthoc_override.settings["model"]["shift"] for posthoc_override in posthoc_overrides] == [
        0.1,
        0.2,
    ]
    assert [posthoc_override.planned.seed for posthoc_override in posthoc_overrides] == [8, 8]
    assert {posthoc_override.settings["model"]["x"] for posthoc_override in posthoc_overrides} == {
        second.settings["model"]["x"]
    }
    finish(conductor, first)
    assert [each.source_id for each in ask_all(conductor)] == [first.trial_id] * 2


def test_splits_that_were_added_are_read_alone_under_the_settings_of_the_trial():
    plan = make_plan(1, trials_per_arm=1, seeds=(7,), posthoc=({"model.shift": 0.1},))
    late = PlannedTrial("late", "arm-0", "posthoc", 1, 7, 0, late_splits=("long",))
    longer = replace(plan.confirm, splits=("test", "long"))
    conductor = Conductor(replace(plan, confirm=longer, trials=(*plan.trials, late)))
    finish(conductor, conductor.next_trial())
    confirmed = conductor.next_trial()
    finish(conductor, confirmed)
    reading, again = ask_all(conductor)
    assert [reading.splits, again.splits] == [("test", "long"), ("long",)]
    assert [reading.source_id, again.source_id] == [confirmed.trial_id] * 2
    assert again.settings == confirmed.settings != reading.settings


def test_without_a_search_the_arms_own_settings_are_confirmed():
    conductor = Conductor(make_plan(2, trials_per_arm=0, seeds=(7,)))
    trials = ask_all(conductor)
    assert names(trials) == [("arm-0", "confirm", 0), ("arm-1", "confirm", 0)]
    assert [(dict(trial.assignment), trial.settings["model"]["x"]) for trial in trials] == [({}, 0.5)] * 2


def test_a_search_alone_ends_with_it():
    conductor = Conductor(make_plan(1, trials_per_arm=1, seeds=()))
    assert not conductor.finished
    finish(conductor, conductor.next_trial())
    assert conductor.finished
    assert conductor.next_trial() is None


def test_a_stopped_trial_is_handed_out_first_and_unchanged():
    conductor = Conductor(make_plan(2, trials_per_arm=3))
    first, second = conductor.next_trial(), conductor.next_trial()
    conductor.record_end(second.trial_id, STOPPED)
    conductor.record_end(first.trial_id, STOPPED)
    assert [conductor.next_trial(), conductor.next_trial()] == [second, first]
    assert names([conductor.next_trial()]) == [("arm-0", "search", 1)]


@pytest.mark.parametrize("kind", [OutcomeKind.DIVERGED, OutcomeKind.OUT_OF_MEMORY, OutcomeKind.PRUNED])
def test_only_finished_trials_win(kind):
    conductor = Conductor(make_plan(1, trials_per_arm=2, seeds=(7,), stopper={"name": "median"}))
    good, bad = ask_all(conductor)
    conductor.report(good.trial_id, report(99.0))
    conductor.record_end(good.trial_id, Outcome(kind, "for a reason"))
    finish(conductor, bad, 0.0)
    assert ask_all(conductor)[0].assignment == bad.assignment


def test_a_search_that_found_nothing_makes_unrunnable_its_confirm_and_posthoc_trials_alone():
    plan = make_plan(2, trials_per_arm=1, seeds=(7, 8), posthoc=({"model.shift": 1.0},))
    conductor = Conductor(plan)
    first, second = ask_all(conductor)
    conductor.record_end(first.trial_id, Outcome(OutcomeKind.DIVERGED, "nan"))
    unrunnable = conductor.take_unrunnable()
    phases = [(trial.planned.phase, trial.planned.arm) for trial, _ in unrunnable]
    assert sorted(phases) == [("confirm", "arm-0")] * 2 + [("posthoc", "arm-0")] * 2
    reasons = {trial.planned.phase: outcome.reason for trial, outcome in unrunnable}
    assert reasons["confirm"] == (
        "a confirm trial needs an assignment whose search trial finished, and the search of arm 'arm-0' "
        "found 0 where 1 are needed; its trials: 1 diverged"
    )
    assert "must have finished, but crashed: a confirm trial needs" in reasons["posthoc"]
    assert {outcome.kind for _, outcome in unrunnable} == {OutcomeKind.CRASHED}
    assert conductor.take_unrunnable() == []
    finish(conductor, second)
    assert names(ask_all(conductor)) == [("arm-1", "confirm", 0), ("arm-1", "confirm", 1)]


def test_a_rank_nobody_holds_is_doomed():
    conductor = Conductor(make_plan(1, trials_per_arm=2, best=2, seeds=(7,)))
    first, second = ask_all(conductor)
    conductor.record_end(first.trial_id, CRASH)
    finish(conductor, second)
    ((trial, outcome),) = conductor.take_unrunnable()
    assert trial.planned.rank == 1
    assert "found 1 where 2 are needed; its trials: 1 crashed, 1 finished" in outcome.reason


def test_a_failed_confirm_trial_makes_unrunnable_what_would_read_it():
    conductor = Conductor(make_plan(1, trials_per_arm=1, seeds=(7,), posthoc=({"model.shift": 1.0},)))
    finish(conductor, conductor.next_trial())
    confirm = conductor.next_trial()
    conductor.record_end(confirm.trial_id, CRASH)
    ((trial, outcome),) = conductor.take_unrunnable()
    assert trial.source_id == confirm.trial_id
    assert (
        outcome.reason == f"its confirmed trial {confirm.trial_id} must have finished, but crashed: KeyError"
    )
    assert conductor.finished


def test_a_space_that_admits_nothing_makes_unrunnable_its_search(monkeypatch):
    monkeypatch.setattr(arm_search, "TRIES", 5)
    space = Space(LINE.dimensions, (Constraint("model.x", ">", 2),))
    conductor = Conductor(make_plan([make_arm("none", space), make_arm("some")], trials_per_arm=2, seeds=()))
    assert names(ask_all(conductor)) == [("some", "search", 0), ("some", "search", 1)]
    assert [
        "5 draws for arm 'none' did not" in outcome.reason for _, outcome in conductor.take_unrunnable()
    ] == [True] * 2


INFEASIBLE = Outcome(OutcomeKind.INFEASIBLE, "the model does not fit")


def end_infeasible(conductor, trial):
    outcome = conductor.judge_outcome(trial.trial_id, INFEASIBLE)
    conductor.record_end(trial.trial_id, outcome)
    return outcome


def test_an_infeasible_trial_costs_no_trial():
    plan = make_plan(1, trials_per_arm=2, seeds=(7,))
    conductor = Conductor(plan)
    first, second = ask_all(conductor)
    assert end_infeasible(conductor, first) == INFEASIBLE
    third = conductor.next_trial()
    assert names([third]) == [("arm-0", "search", 2)]
    assert third.trial_id not in {trial.trial_id for trial in plan.trials}
    (progress,) = conductor.progress()
    assert (progress.planned, progress.ended, progress.infeasible, progress.failed) == (3, 0, 1, 0)
    finish(conductor, second, 0.1)
    assert conductor.next_trial() is None
    finish(conductor, third, 0.9)
    confirm = conductor.next_trial()
    assert (confirm.planned.phase, confirm.assignment) == ("confirm", third.assignment)
    finish(conductor, confirm)
    assert conductor.finished


def test_a_search_of_infeasible_settings_alone_ends_with_a_reason():
    conductor = Conductor(make_plan(1, trials_per_arm=2, seeds=(7,)))
    ended = 0
    while (trial := conductor.next_trial()) is not None:
        end_infeasible(conductor, trial)
        ended += 1
    assert ended == 20
    outcomes = [outcome for _, outcome in conductor.take_unrunnable()]
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.SKIPPED] * 2 + [OutcomeKind.CRASHED]
    assert "20 trials called their settings infeasible, 10 for each that was asked for" in outcomes[0].reason
    assert "20 infeasible" in outcomes[2].reason
    assert conductor.finished


def test_a_grid_has_no_more_combinations_in_place_of_infeasible_ones():
    space = Space((Dimension("model.x", Choice((0.1, 0.2))),))
    plan = make_plan([make_arm("grid", space)], trials_per_arm=2, seeds=(7,), sampler="grid")
    conductor = Conductor(plan)
    first, second = ask_all(conductor)
    end_infeasible(conductor, first)
    assert conductor.next_trial() is None
    ((_, outcome),) = conductor.take_unrunnable()
    assert outcome.kind is OutcomeKind.SKIPPED
    assert "every combination was tried" in outcome.reason
    finish(conductor, second)
    assert conductor.next_trial().assignment == second.assignment


def test_a_trial_over_its_time_limit_is_stopped():
    conductor = Conductor(make_plan(1, resources=Resources(minutes=1.0)))
    trial = conductor.next_trial()
    assert conductor.report(trial.trial_id, report(0.1, step=1, seconds=60.0)) == Continue()
    decision = conductor.report(trial.trial_id, report(0.1, step=2, seconds=75.0))
    assert decision == Stop(OutcomeKind.TIMED_OUT, "1.2 of 1 minutes were used at step 2")


def test_the_early_stopper_compares_what_counts():
    """The first trial was best at step 1 and has fallen below the second by step 2."""
    for scope, stops in (("last", True), ("best", False)):
        plan = make_plan(
            1,
            trials_per_arm=2,
            stopper={"name": "asha", "grace_steps": 2, "reduction": 2},
            objectives=(Objective(metric="valid/score", goal="max", scope=scope),),
        )
        conductor = Conductor(plan)
        steady, peak = ask_all(conductor)
        for step, value in enumerate((0.5, 0.5, 0.5), start=1):
            conductor.report(steady.trial_id, report(value, step))
        conductor.record_end(steady.trial_id, DONE)
        decisions = [
            conductor.report(peak.trial_id, report(value, step)) for step, value in ((1, 0.9), (2, 0.1))
        ]
        assert (decisions[-1] != Continue()) is stops


@pytest.mark.parametrize(
    ("scope", "first"), [("last", "steady"), ("best", "overfits"), ("mean-of-last-2", "steady")]
)
def test_what_is_confirmed_follows_the_scope(scope, first):
    space = Space((Dimension("model.x", Choice(("overfits", "steady"))),))
    plan = make_plan(
        [make_arm("arm", space)],
        trials_per_arm=2,
        sampler="grid",
        objectives=(Objective(metric="valid/score", goal="max", scope=scope),),
    )
    curves = {"overfits": (0.5, 0.9, 0.2), "steady": (0.5, 0.6, 0.7)}
    conductor, replayed, history = Conductor(plan), Conductor(plan), []
    for trial in ask_all(conductor):
        history.append(asked(0.0, trial))
        for step, value in enumerate(curves[trial.assignment["model.x"]], start=1):
            conductor.report(trial.trial_id, report(value, step))
            history.append(measured(0.0, trial.trial_id, report(value, step)))
        conductor.record_end(trial.trial_id, DONE)
        history.append(ended(0.0, trial.trial_id, DONE))
    for event in history:
        replayed.replay(event)
    for each in (conductor, replayed):
        assert each.next_trial().assignment == {"model.x": first}
    (progress,) = replayed.progress()
    assert progress.best == pytest.approx({"last": 0.7, "best": 0.9, "mean-of-last-2": 0.65}[scope])
    searched = [record for record in records(history, plan) if record.phase == "search"]
    assert max(each.judged_by(["valid/score"]) for each in searched) == (pytest.approx(progress.best),)
    assert {each.reports for each in searched} == {3}


def test_no_arm_is_pruned_by_its_betters():
    plan = make_plan(2, trials_per_arm=2, stopper={"name": "asha", "grace_steps": 1, "reduction": 2})
    conductor = Conductor(plan)
    strong, weak, *_ = ask_all(conductor)
    assert conductor.report(strong.trial_id, report(0.9)) == Continue()
    assert conductor.report(weak.trial_id, report(0.1)) == Continue()


def test_a_stop_once_decided_stands():
    conductor = Conductor(make_plan(1, resources=Resources(minutes=1.0)))
    trial = conductor.next_trial()
    decision = conductor.report(trial.trial_id, report(0.1, step=1, seconds=90.0))
    assert conductor.report(trial.trial_id, report(0.1, step=2, seconds=95.0)) == decision


def test_confirm_trials_are_never_pruned():
    conductor = Conductor(make_plan(1, trials_per_arm=1, stopper={"name": "threshold", "upper": 0.0}))
    search = conductor.next_trial()
    assert isinstance(conductor.report(search.trial_id, report(1.0)), Stop)
    conductor.record_end(search.trial_id, DONE)
    assert conductor.report(conductor.next_trial().trial_id, report(1.0)) == Continue()


def test_a_search_trial_without_its_objective_has_crashed():
    conductor = Conductor(make_plan(1))
    silent, other = conductor.next_trial(), conductor.next_trial()
    assert (
        "objectives valid/score, got no measurement" in conductor.judge_outcome(silent.trial_id, DONE).reason
    )
    conductor.report(other.trial_id, Measurement(1, 1.0, {"train/loss": 1.0}))
    settled = conductor.judge_outcome(other.trial_id, DONE)
    assert settled.kind is OutcomeKind.CRASHED
    assert settled.reason == (
        "a search trial must report its objectives valid/score, got train/loss; check search.objectives"
    )


def test_progress_counts_every_ending():
    conductor = Conductor(make_plan(1, trials_per_arm=6, seeds=(7,), stopper={"name": "median"}))
    trials = ask_all(conductor)
    for trial, value in zip(trials, count(1)):
        conductor.report(trial.trial_id, report(float(value), seconds=10.0))
    conductor.record_end(trials[0].trial_id, DONE)
    conductor.record_end(trials[1].trial_id, DONE)
    conductor.record_end(trials[2].trial_id, Outcome(OutcomeKind.PRUNED, "behind"))
    conductor.record_end(trials[3].trial_id, Outcome(OutcomeKind.TIMED_OUT, "slow"))
    conductor.record_end(trials[4].trial_id, STOPPED)
    (progress,) = conductor.progress()
    assert progress == Progress(
        arm="arm-0", planned=7, running=1, finished=2, pruned=1, failed=1, best=2.0, seconds=60.0
    )
    assert progress.ended == 4


def test_a_ledger_of_another_plan_is_refused():
    stranger = Conductor(make_plan(1, seed=5)).next_trial()
    with pytest.raises(StoreError, match=f"only trials of the plan, got {stranger.trial_id}"):
        Conductor(make_plan(1)).replay(asked(0.0, stranger))


def test_identical_arms_get_equal_budgets_at_any_time():
    """A/A arms: however trials end, no arm is ever more than one search trial ahead."""
    arms = [
        make_arm(f"twin-{number}", Space((Dimension("model.x", Choice((0.1, 0.9))),))) for number in range(3)
    ]
    conductor = Conductor(make_plan(arms, trials_per_arm=5, seeds=()))
    given_out = dict.fromkeys((arm.name for arm in arms), 0)
    for number, trial in enumerate(iter(conductor.next_trial, None)):
        given_out[trial.planned.arm] += 1
        assert max(given_out.values()) - min(given_out.values()) <= 1
        conductor.record_end(trial.trial_id, CRASH) if number % 4 else finish(conductor, trial)
    assert set(given_out.values()) == {5}
