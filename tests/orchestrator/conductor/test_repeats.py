"""Repeated searches: independent of each other, paired across arms, resumed as they were."""

from collections import Counter

import pytest

from orchestrator.conductor.conductor import Conductor
from orchestrator.ledger.fold import records
from orchestrator.plan.types import AnswerPlan
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.processes.logs import MemoryLog, content, record
from tests.support.sweeps.driving import run_in_turn
from tests.support.sweeps.repeated import repeated_plan
from trainables.protocol import Measurement

ARMS = ("arm-0", "arm-1", "control-0")
DONE = Outcome(OutcomeKind.FINISHED, "ran to its end")


def run(plan, value=lambda planned: 0.0):
    """All trials that ran, in the order in which they were handed out."""
    conductor, ran = Conductor(plan), []
    while (trial := conductor.next_trial()) is not None:
        named = {"valid/score": trial.settings["model"]["x"], "test/score": value(trial.planned)}
        conductor.report(trial.trial_id, Measurement(1, 1.0, named))
        conductor.record_end(trial.trial_id, DONE)
        ran.append(trial)
    assert conductor.finished
    return ran


def assignments(ran, arm, repeat):
    return [
        dict(trial.assignment)
        for trial in ran
        if (trial.planned.arm, trial.planned.repeat, trial.planned.phase) == (arm, repeat, "search")
    ]


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_repeats_differ_and_are_paired_across_arms(sampler):
    plan = repeated_plan(3, controls=1, sampler=sampler)
    ran = run(plan)
    own = [assignments(ran, "arm-0", repeat) for repeat in range(3)]
    assert own == [assignments(ran, "arm-1", repeat) for repeat in range(3)]
    assert own[0] != own[1] != own[2] != own[0]
    assert all(assignments(ran, "control-0", repeat) != own[repeat] for repeat in range(3))
    seeds = {
        arm: [trial.seed for trial in plan.trials if (trial.arm, trial.phase) == (arm, "search")]
        for arm in ARMS
    }
    assert seeds["arm-0"] == seeds["arm-1"]
    assert not set(seeds["arm-0"]) & set(seeds["control-0"]), "a control would repeat the baseline"


def test_every_repeat_confirms_its_own_best_on_its_own_seeds():
    ran = run(repeated_plan(3))
    for arm in ("arm-0", "arm-1"):
        for repeat in range(3):
            best = max(assignments(ran, arm, repeat), key=lambda each: each["model.x"])
            confirmed = [
                trial
                for trial in ran
                if (trial.planned.arm, trial.planned.repeat, trial.planned.phase) == (arm, repeat, "confirm")
            ]
            assert [trial.assignment for trial in confirmed] == [best, best]
    seeds = Counter(trial.planned.seed for trial in ran if trial.planned.phase == "confirm")
    assert len(seeds) == 6
    assert set(seeds.values()) == {2}, "the same seeds in both arms"


def test_repeats_run_in_order_but_nobody_waits_for_them():
    plan = repeated_plan(2, others=0, trials_per_arm=2)
    conductor = Conductor(plan)
    ahead = list(iter(conductor.next_trial, None))
    assert [trial.planned.repeat for trial in ahead] == [0, 0, 1, 1]
    for trial in ahead[:2]:
        conductor.report(trial.trial_id, Measurement(1, 1.0, {"valid/score": 0.5}))
        conductor.record_end(trial.trial_id, DONE)
    following = conductor.next_trial()
    assert following is not None
    assert (following.planned.phase, following.planned.repeat) == ("confirm", 0)


@pytest.mark.parametrize("cut", range(4, 60, 7))
def test_a_killed_sweep_goes_on_as_if_undisturbed(cut):
    plan = repeated_plan(3, sampler="tpe", controls=1)
    whole = MemoryLog()
    run_in_turn(record(plan, whole))
    rest = MemoryLog(whole.written[: whole.batches[cut]])
    run_in_turn(record(plan, rest))
    assert content(rest.written) == content(whole.written)
    assert {record.repeat for record in records(rest.written, plan)} == {0, 1, 2}


def test_decided_arms_skip_the_searches_of_later_repeats():
    """The others run all; a decided arm was decided by repeats, each with the mean of its seeds."""
    answer = AnswerPlan(("test/score",), None, 0.05, 1)
    plan = repeated_plan(6, answer=answer, controls=1)
    noise = {seed: 0.01 * ((seed * 7919) % 13) for seed in plan.units}
    ran = run(
        plan,
        lambda planned: (
            noise.get(planned.seed, 0.0) * (1 + (planned.arm == "arm-1")) + (planned.arm == "arm-1")
        ),
    )
    last = {arm: max(trial.planned.repeat for trial in ran if trial.planned.arm == arm) for arm in ARMS}
    assert last == {"arm-0": 5, "arm-1": 2, "control-0": 5}
