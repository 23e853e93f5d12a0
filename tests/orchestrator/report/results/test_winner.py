"""The choice of the best arm and its description."""

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
ANSWER_PLAN = AnswerPlan(("test/score",), None, 0.05, 1)
PLAN = replace(make_plan(2, trials_per_arm=2), metrics=(SCORE,), answer=ANSWER_PLAN, trainable="own:train")


def make_records(plan, scores):
    """Return records of ended trials with a score by (arm, phase, number); None means diverged."""

    def trial_events():
        yield log.claim_event(0.0, DEAD, plan.spec_digest, {})
        for number, trial in enumerate(plan.trials):
            key = (trial.arm, trial.phase, trial.number)
            if key not in scores:
                continue
            yield log.params_event(1.0, trial_of(plan, number))
            yield log.start_event(2.0, trial.trial_id, 1)
            if scores[key] is not None:
                metrics = {f"{split}/score": scores[key] for split in ("valid", "test")}
                yield log.measurement_event(3.0, trial.trial_id, Measurement(5, 1.0, metrics))
            kind = OutcomeKind.DIVERGED if scores[key] is None else OutcomeKind.FINISHED
            yield log.end_event(4.0, trial.trial_id, Outcome(kind, "so it was"))

    return records(trial_events(), plan)


def choose_winner(scores, plan=PLAN, arm=None):
    trial_records = make_records(plan, scores)
    return find_winner(plan, trial_records, summarise(plan, trial_records), arm)


def confirm_scores(*scores_of_arms):
    return {
        (f"arm-{arm_number}", "confirm", number): score
        for arm_number, scores in enumerate(scores_of_arms)
        for number, score in enumerate(scores)
    }


SEARCH_SCORES = {("arm-0", "search", 0): 0.9, ("arm-0", "search", 1): 0.2, ("arm-1", "search", 0): 0.8}


def test_winner_has_the_best_mean_over_confirm_seeds():
    winner = choose_winner(SEARCH_SCORES | confirm_scores((0.5, 0.6), (0.7, 0.6)))
    assert (winner.arm, winner.phase, winner.value) == ("arm-1", "confirm", pytest.approx(0.65))
    assert [record.seed for record in winner.records] == [101, 102]


def test_winner_of_a_minimised_metric_has_the_lowest_mean():
    plan = replace(PLAN, metrics=(replace(SCORE, better="min"),))
    winner = choose_winner(confirm_scores((0.5, 0.6), (0.7, 0.6)), plan)
    assert winner.arm == "arm-0"


def test_arm_with_failed_seeds_is_ranked_last():
    winner = choose_winner(confirm_scores((0.5, 0.4), (0.9, None)))
    assert winner.arm == "arm-0"
    assert "except arm-1" in next(winner.comments())
    assert choose_winner(confirm_scores((0.5, 0.4), (0.9, None)), arm="arm-1").arm == "arm-1"


def test_winner_lists_equally_good_arms():
    winner = choose_winner(confirm_scores((0.5, 0.7), (0.5, 0.7)))
    assert winner.arm == "arm-0"
    assert winner.equal_arms == ("arm-1",)


def test_winner_without_confirmation_has_the_best_search_value():
    winner = choose_winner(SEARCH_SCORES)
    assert (winner.arm, winner.phase, winner.value, winner.num_candidates) == ("arm-0", "search", 0.9, 2)
    assert "search" in next(winner.comments())


def test_search_trial_with_a_last_report_without_the_objective_counts():
    trial_records = [
        replace(record, judged=record.last, last=Measurement(6, 1.2, {"train/loss": 0.1}))
        for record in make_records(PLAN, SEARCH_SCORES)
    ]
    plan = replace(PLAN, confirm=None, answer=None)
    assert find_winner(plan, trial_records, summarise(plan, trial_records)).value == 0.9
    assert [best.values for best in summarise(plan, trial_records).searched] == [
        {"valid/score": 0.9},
        {"valid/score": 0.8},
    ]


def test_winner_has_the_best_of_several_params():
    plan = replace(make_plan(1, best=2), metrics=(SCORE,), answer=ANSWER_PLAN, trainable="own:train")
    winner = choose_winner(confirm_scores((0.5, 0.6, 0.7, 0.8)), plan)
    assert [record.rank for record in winner.records] == [1, 1]


def test_best_without_candidates_is_an_error():
    with pytest.raises(InputError):
        choose_winner({("arm-0", "search", 0): None})
    with pytest.raises(InputError, match="arm-1"):
        choose_winner(confirm_scores((0.5, 0.6)), arm="arm-1")
    with pytest.raises(InputError, match="'arm-9'"):
        choose_winner(SEARCH_SCORES, arm="arm-9")


def test_best_needs_a_declared_direction():
    plan = replace(PLAN, metrics=(Metric("score"),), search=None)
    plan = replace(plan, trials=tuple(trial for trial in plan.trials if trial.phase == "confirm"))
    with pytest.raises(InputError, match="test/score"):
        choose_winner(confirm_scores((0.5, 0.6), (0.7, 0.6)), plan)
    assert choose_winner(confirm_scores((0.5, 0.6), (0.7, 0.6)), plan, "arm-0").goal is None
