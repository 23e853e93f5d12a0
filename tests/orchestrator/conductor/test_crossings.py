"""Arms at the settings of each other: both searches first, then the choices of each on the confirm seeds."""

from dataclasses import replace

import pytest

from orchestrator.conductor.conductor import Conductor
from orchestrator.conductor.retrying import choose
from orchestrator.errors import InputError
from orchestrator.ledger.fold import records
from orchestrator.trials import Outcome, OutcomeKind
from search_spaces.dimensions import Dimension, Float, Space
from tests.support.processes.logs import MemoryLog, content, record
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.driving import run_in_turn
from tests.support.sweeps.repeated import repeated_plan
from trainables.protocol import Measurement

DONE = Outcome(OutcomeKind.FINISHED, "ran to its end")
CRASHED = Outcome(OutcomeKind.CRASHED, "broke")


def score(trial):
    """By which the arms choose differently."""
    x = trial.settings["model"]["x"]
    return x if trial.planned.arm == "arm-0" else -x


def run(plan, end=lambda trial: DONE):
    """All trials, in the order in which they were handed out."""
    conductor, ran = Conductor(plan), []
    while (trial := conductor.next_trial()) is not None:
        named = {"valid/score": score(trial), "test/score": 0.0}
        conductor.report(trial.trial_id, Measurement(1, 1.0, named))
        conductor.record_end(trial.trial_id, end(trial))
        ran.append(trial)
    return conductor, ran


def of(ran, arm, phase, repeat=0):
    return [
        trial
        for trial in ran
        if (trial.planned.arm, trial.planned.phase, trial.planned.repeat) == (arm, phase, repeat)
    ]


def test_each_arm_runs_at_the_choice_of_the_other_of_the_same_repeat_and_seeds():
    conductor, ran = run(repeated_plan(2, cross=True))
    assert conductor.finished
    for repeat in range(2):
        chosen = {arm: of(ran, arm, "confirm", repeat)[0].assignment for arm in ("arm-0", "arm-1")}
        assert chosen["arm-0"] != chosen["arm-1"]
        for arm, other in (("arm-0", "arm-1"), ("arm-1", "arm-0")):
            crossed = of(ran, arm, "cross", repeat)
            assert [trial.assignment for trial in crossed] == [chosen[other]] * 2
            assert {trial.planned.settings_of for trial in crossed} == {other}
            seeds = [trial.planned.seed for trial in of(ran, arm, "confirm", repeat)]
            assert [trial.planned.seed for trial in crossed] == seeds
            assert all(each.splits == ("test",) for each in crossed)


def test_fields_that_one_arm_alone_searches_stay_as_it_chose_them():
    wide = Space((Dimension("model.x", Float(0.0, 1.0)), Dimension("model.shift", Float(0.0, 1.0))))
    plan = make_plan([make_arm("arm-0"), replace(make_arm("arm-1", wide), reference="arm-0")])
    confirm = replace(plan.confirm, cross=True)
    crossing = repeated_plan(1, cross=True)
    own = [trial for trial in crossing.trials if trial.phase == "cross"]
    _, ran = run(replace(plan, confirm=confirm, trials=(*plan.trials, *own)))
    theirs = of(ran, "arm-0", "confirm")[0].assignment
    mine = of(ran, "arm-1", "confirm")[0].assignment
    assert of(ran, "arm-1", "cross")[0].assignment == {**mine, "model.x": theirs["model.x"]}
    assert of(ran, "arm-0", "cross")[0].assignment == {"model.x": mine["model.x"]}


def test_without_a_choice_of_one_arm_nothing_is_crossed_with_it():
    def end(trial):
        failing = (trial.planned.arm, trial.planned.phase) == ("arm-1", "search")
        return CRASHED if failing else DONE

    conductor, ran = run(repeated_plan(1, others=2, cross=True), end)
    assert conductor.finished
    assert {(trial.planned.arm, trial.planned.settings_of) for trial in ran if trial.planned.settings_of} == {
        ("arm-0", "arm-2"),
        ("arm-2", "arm-0"),
    }
    lost = [trial.planned for trial, _ in conductor.take_unrunnable()]
    crossed = {(crossing.arm, crossing.settings_of) for crossing in lost if crossing.phase == "cross"}
    assert crossed == {("arm-0", "arm-1"), ("arm-1", "arm-0")}


@pytest.mark.parametrize("cut", range(6, 40, 5))
def test_a_killed_sweep_goes_on_as_if_undisturbed(cut):
    plan = repeated_plan(1, cross=True)
    whole = MemoryLog()
    run_in_turn(record(plan, whole))
    rest = MemoryLog(whole.written[: whole.batches[cut]])
    run_in_turn(record(plan, rest))
    assert content(rest.written) == content(whole.written)
    assert {record.phase for record in records(rest.written, plan)} == {"search", "confirm", "cross"}


def test_a_search_is_over_once_an_arm_runs_at_its_choice():
    plan = repeated_plan(1, cross=True)
    log = MemoryLog()
    run_in_turn(record(plan, log))
    found = records(log.written, plan)
    begun = next(each for each in found if (each.arm, each.phase) == ("arm-0", "cross"))
    searched = next(each for each in found if (each.arm, each.phase) == ("arm-1", "search"))
    failed = replace(searched, outcome=OutcomeKind.CRASHED)
    with pytest.raises(InputError, match="the search of arm arm-1 is over"):
        choose(plan, [begun, failed], [failed.trial_id])
    assert choose(plan, [failed], [failed.trial_id]).trial_ids == (failed.trial_id,)


def test_a_retried_search_waits_with_what_it_chooses():
    conductor, trials = Conductor(repeated_plan(1, cross=True)), []
    while (trial := conductor.next_trial()) is not None:
        broken = (trial.planned.arm, trial.planned.phase) == ("arm-1", "search")
        conductor.report(
            trial.trial_id, Measurement(1, 1.0, {"valid/score": score(trial), "test/score": 0.0})
        )
        conductor.record_end(trial.trial_id, CRASHED if broken else DONE)
        trials.append(trial)
    failed = [trial for trial in trials if (trial.planned.arm, trial.planned.phase) == ("arm-1", "search")]
    reopened = conductor.retry(failed[0].trial_id, -1)
    again = conductor.next_trial()
    assert again is not None
    assert again.trial_id == failed[0].trial_id
    assert conductor.next_trial() is None, "nothing is crossed before the search has chosen"
    conductor.report(again.trial_id, Measurement(1, 1.0, {"valid/score": 0.0}))
    conductor.record_end(again.trial_id, DONE)
    rest = [*iter(conductor.next_trial, None)]
    assert {trial.trial_id for trial in rest} == set(reopened)
    assert {trial.planned.phase for trial in rest} == {"confirm", "cross"}
