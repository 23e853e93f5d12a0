"""Which system is the best one, and what is said of it."""

from dataclasses import replace

import pytest

from orchestrator.errors import InputError
from orchestrator.ledger import events as log
from orchestrator.ledger.fold import records
from orchestrator.plan.types import AnswerPlan
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.winner import find_winner
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import DEAD, trial_of
from trainables.metrics import Metric
from trainables.protocol import Measurement

SCORE = Metric("score", better="max")
ANSWER = AnswerPlan(("test/score",), None, 0.05, 1)
PLAN = replace(make_plan(2, trials_per_arm=2), metrics=(SCORE,), answer=ANSWER, trainable="own:train")


def played(plan, values):
    """Records of trials that ended; `values`: by (arm, phase, number) the score, None where it diverged."""

    def events():
        yield log.opened(0.0, DEAD, plan.spec_digest, {})
        for number, planned in enumerate(plan.trials):
            key = (planned.arm, planned.phase, planned.number)
            if key not in values:
                continue
            yield log.asked(1.0, trial_of(plan, number))
            yield log.started(2.0, planned.trial_id, 1)
            if values[key] is not None:
                metrics = {f"{split}/score": values[key] for split in ("valid", "test")}
                yield log.measured(3.0, planned.trial_id, Measurement(5, 1.0, metrics))
            kind = OutcomeKind.DIVERGED if values[key] is None else OutcomeKind.FINISHED
            yield log.ended(4.0, planned.trial_id, Outcome(kind, "so it was"))

    return records(events(), plan)


def chosen(values, plan=PLAN, arm=None):
    found = played(plan, values)
    return find_winner(plan, found, summarise(plan, found), arm)


def confirmed(*arms):
    return {
        (f"arm-{place}", "confirm", number): value
        for place, values in enumerate(arms)
        for number, value in enumerate(values)
    }


SEARCHED = {("arm-0", "search", 0): 0.9, ("arm-0", "search", 1): 0.2, ("arm-1", "search", 0): 0.8}


def test_by_the_mean_over_confirm_seeds_whatever_the_search_said():
    found = chosen(SEARCHED | confirmed((0.5, 0.6), (0.7, 0.6)))
    assert (found.arm, found.by, found.value) == ("arm-1", "confirm", pytest.approx(0.65))
    assert [record.seed for record in found.records] == [101, 102]
    comments = list(found.comments())
    assert comments[0] == (
        "arm-1, by its confirm trials: mean test/score 0.65 over 2 of 2 seeds, the highest of 2 arms."
    )
    assert len(comments) == 2


def test_where_small_values_are_good():
    plan = replace(PLAN, metrics=(replace(SCORE, better="min"),))
    found = chosen(confirmed((0.5, 0.6), (0.7, 0.6)), plan)
    assert found.arm == "arm-0"
    assert "the lowest of 2 arms" in next(found.comments())


def test_an_arm_with_failed_seeds_comes_last():
    found = chosen(confirmed((0.5, 0.4), (0.9, None)))
    assert found.arm == "arm-0"
    assert "the highest of 2 arms except arm-1, which had failed seeds." in next(found.comments())
    found = chosen(confirmed((0.5, 0.4), (0.9, None)), arm="arm-1")
    assert list(found.comments()) == ["arm-1, by its confirm trials: mean test/score 0.9 over 1 of 2 seeds."]


def test_equals_are_named():
    found = chosen(confirmed((0.5, 0.7), (0.5, 0.7)))
    assert found.arm == "arm-0"
    assert found.equals == ("arm-1",)
    found = chosen({("arm-0", "search", 0): 0.8, ("arm-1", "search", 1): 0.8})
    assert (found.arm, found.equals) == ("arm-0", ("arm-1",))


def test_by_the_search_where_nothing_is_confirmed():
    found = chosen(SEARCHED)
    assert (found.arm, found.by, found.value, found.of) == ("arm-0", "search", 0.9, 2)
    comments = " ".join(found.comments())
    assert "by its search alone: valid/score 0.9 in search trial 0, the best of 2 of the arm that" in comments


def test_a_last_report_without_the_objective_hides_no_search_trial():
    found = [
        replace(record, judged=record.last, last=Measurement(6, 1.2, {"train/loss": 0.1}))
        for record in played(PLAN, SEARCHED)
    ]
    plan = replace(PLAN, confirm=None, answer=None)
    assert find_winner(plan, found, summarise(plan, found)).value == 0.9
    assert [each.values for each in summarise(plan, found).searched] == [
        {"valid/score": 0.9},
        {"valid/score": 0.8},
    ]


def test_of_several_assignments_the_best():
    plan = replace(make_plan(1, best=2), metrics=(SCORE,), answer=ANSWER, trainable="own:train")
    found = chosen(confirmed((0.5, 0.6, 0.7, 0.8)), plan)
    assert [record.rank for record in found.records] == [1, 1]
    assert next(found.comments()).endswith(", the highest of 2 assignments of 1 arm.")


def test_an_assignment_with_failed_seeds_comes_after_one_without():
    """Its mean is of the seeds that survived."""
    plan = replace(make_plan(1, best=2), metrics=(SCORE,), answer=ANSWER, trainable="own:train")
    found = chosen(confirmed((0.5, 0.6, 0.9, None)), plan)
    assert ([record.rank for record in found.records], found.value) == ([0, 0], pytest.approx(0.55))


def test_best_without_candidates_is_an_error():
    with pytest.raises(InputError, match="no trial has finished"):
        chosen({("arm-0", "search", 0): None})
    with pytest.raises(InputError, match="no trial of arm-1 has finished"):
        chosen(confirmed((0.5, 0.6)), arm="arm-1")
    with pytest.raises(InputError, match="no arm named 'arm-9'"):
        chosen(SEARCHED, arm="arm-9")


def test_best_needs_a_declared_direction():
    plan = replace(PLAN, metrics=(Metric("score"),), search=None)
    plan = replace(plan, trials=tuple(trial for trial in plan.trials if trial.phase == "confirm"))
    with pytest.raises(InputError, match="test/score"):
        chosen(confirmed((0.5, 0.6), (0.7, 0.6)), plan)
    assert chosen(confirmed((0.5, 0.6), (0.7, 0.6)), plan, "arm-0").goal is None
