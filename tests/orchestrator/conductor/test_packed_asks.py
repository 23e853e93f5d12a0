"""Which trials may be trained together: seeds of one arm and one assignment, as far as they may run."""

from orchestrator.conductor.conductor import Conductor
from orchestrator.plan.types import AnswerPlan
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.plans import make_plan
from trainables.protocol import Measurement

DONE = Outcome(OutcomeKind.FINISHED, "ran to its end")
STOPPED = Outcome(OutcomeKind.STOPPED, "interrupted")


def beside(conductor, trial, **keywords):
    found = []
    while (other := conductor.ask_beside(trial.trial_id, **keywords)) is not None:
        found.append(other)
    return [(each.planned.arm, each.planned.rank, each.planned.seed) for each in found]


def test_they_are_of_one_arm_and_are_not_asked_for_again():
    conductor = Conductor(make_plan(2, trials_per_arm=0, seeds=(1, 2, 3)))
    first = conductor.ask()
    assert beside(conductor, first) == [("arm-0", 0, 2), ("arm-0", 0, 3)]
    assert conductor.ask().planned.arm == "arm-1"


def test_they_have_one_assignment():
    conductor = Conductor(make_plan(1, trials_per_arm=3, seeds=(1, 2), best=2))
    searched = [conductor.ask() for _ in range(3)]
    for trial, value in zip(searched, (0.1, 0.3, 0.2), strict=True):
        conductor.hear(trial.trial_id, Measurement(1, 1.0, {"valid/score": value}))
        conductor.tell(trial.trial_id, DONE)
    first = conductor.ask()
    assert beside(conductor, first) == [("arm-0", 0, 2)]
    other = conductor.ask()
    assert other.assignment != first.assignment
    assert beside(conductor, other) == [("arm-0", 1, 2)]


def test_search_trials_and_readings_are_asked_for_alone():
    conductor = Conductor(make_plan(1, trials_per_arm=2, seeds=(1, 2), posthoc=({"model.shift": 0.5},)))
    first = conductor.ask()
    assert beside(conductor, first) == []
    for trial in (first, conductor.ask()):
        conductor.hear(trial.trial_id, Measurement(1, 1.0, {"valid/score": 0.5}))
        conductor.tell(trial.trial_id, DONE)
    for trial in iter(conductor.ask, None):
        conductor.tell(trial.trial_id, DONE)
        if trial.planned.phase == "posthoc":
            assert beside(conductor, trial) == []


def test_stopped_ones_go_on_beside_each_other_unless_they_are_to_run_alone():
    conductor = Conductor(make_plan(1, trials_per_arm=0, seeds=(1, 2, 3)))
    first = conductor.ask()
    others = [conductor.ask_beside(first.trial_id) for _ in range(2)]
    for trial in (first, *others):
        conductor.tell(trial.trial_id, STOPPED)
    again = conductor.ask()
    assert again.planned.seed == 1
    assert beside(conductor, again, alone=lambda each: each == others[0].trial_id) == [("arm-0", 0, 3)]
    assert conductor.ask().planned.seed == 2


def test_seeds_behind_a_look_wait_for_it():
    answer = AnswerPlan(("test/score",), None, 0.05, 1)
    conductor = Conductor(make_plan(2, trials_per_arm=0, seeds=tuple(range(1, 10)), answer=answer))
    _, first = conductor.ask(), conductor.ask()
    assert first.planned.arm == "arm-1"
    asked = [first.planned.seed, *(seed for _, _, seed in beside(conductor, first))]
    alone = Conductor(make_plan(2, trials_per_arm=0, seeds=tuple(range(1, 10)), answer=answer))
    expected = [each.planned.seed for each in iter(alone.ask, None) if each.planned.arm == "arm-1"]
    assert asked == expected
    assert len(asked) < 9


def test_nothing_is_handed_out_while_draining():
    conductor = Conductor(make_plan(1, trials_per_arm=0, seeds=(1, 2)))
    first = conductor.ask()
    conductor.refuse_new("the budget is used up")
    assert conductor.ask_beside(first.trial_id) is None
