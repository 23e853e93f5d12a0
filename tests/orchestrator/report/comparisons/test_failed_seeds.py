"""Verdicts of arms with failed seeds: given if every possible value gives the same."""

import json
from dataclasses import replace

import pytest

from orchestrator.plan.types import AnswerPlan
from orchestrator.report.results.summary import arm_metrics, arm_tags, summarise
from orchestrator.report.writers.json_file import as_json
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.studies import METRICS, SPLITS, study
from tests.orchestrator.report.test_repeats import OUTCOME as SCORE
from tests.orchestrator.report.test_repeats import record as repeated_record
from tests.support.sweeps.repeated import repeated_plan
from trainables.metrics import Metric

OUTCOME = f"{SPLITS[0]}/accuracy"
FAILED = 103


def far_behind(failing: str, difference: float = 0.5, metrics=METRICS):
    """The second arm is `difference` worse than the first; one seed of the `failing` arm diverged."""
    made = study(2, seeds=8, trials=0, thresholds=())
    records = []
    for record in made.records:
        value = record.last.metrics[OUTCOME] - (difference - 0.03) * (record.arm == "arm-1")
        last = replace(record.last, metrics={**record.last.metrics, OUTCOME: value})
        failed = (record.arm, record.seed) == (failing, FAILED)
        records.append(
            replace(record, last=last, outcome=OutcomeKind.DIVERGED if failed else OutcomeKind.FINISHED)
        )
    return summarise(replace(made.plan, metrics=metrics), records)


def test_a_clear_verdict_survives_a_failed_seed_and_is_shown_everywhere():
    report = far_behind("arm-1")
    [found] = report.verdicts
    assert (found.kind, found.text, found.missing) == ("worse", "worse, for any value of 1 failed seed", 1)
    assert found.seeds == "7 of 8 seeds finished"
    assert found.p <= 0.05
    assert found.difference.high < 0
    assert found.difference.n == 7
    effect = report.effect("arm-1", OUTCOME)
    assert (effect.p, effect.estimate) == (found.p, found.difference)
    assert effect.p_sign_flips is None, "which needs all values"
    assert arm_metrics(report)["arm-1"]["answer/p"] == pytest.approx(found.p)
    assert arm_tags(report)["arm-1"]["verdict"] == found.line
    assert json.loads(as_json(report))["verdicts"][0]["missing"] == 1


def test_a_small_difference_is_withheld_and_says_why():
    [found] = far_behind("arm-1", difference=0.05).verdicts
    assert (found.kind, found.missing, found.p) == ("undecided", 0, None)
    assert found.text == "undecided: 1 seed failed; its value could change the verdict"


def test_without_a_declared_range_there_is_no_verdict():
    unbounded = (Metric("accuracy", "max", low=0.0, shown=("table", "headline")), *METRICS[1:])
    [found] = far_behind("arm-1", metrics=unbounded).verdicts
    assert (found.kind, found.missing, found.p) == ("undecided", 0, None)
    assert found.text == f"undecided: 1 seed failed; {OUTCOME} has no declared range"


@pytest.mark.parametrize(("high", "kind"), [(2.0, "better"), (200.0, "undecided")])
def test_the_mean_of_a_repeat_takes_the_bounds(high, kind):
    metrics = (Metric("score", "max", low=-2.0, high=high),)
    plan = replace(repeated_plan(6), answer=AnswerPlan((SCORE,), None, 0.05, 1), metrics=metrics)
    records = [repeated_record(plan, trial) for trial in plan.trials]
    failed = next(record for record in records if record.phase == "confirm" and record.arm == "arm-1")
    crashed = [
        replace(record, outcome=OutcomeKind.CRASHED) if record is failed else record for record in records
    ]
    [whole], [found] = (summarise(plan, each).verdicts for each in (records, crashed))
    assert whole.kind == "better"
    assert (found.kind, found.missing, found.difference.n) == (kind, int(kind == "better"), 5)
    if found.missing:
        assert found.text == "better, for any value of 1 failed repeat"
        assert found.difference.low <= whole.difference.low
        assert found.difference.high >= whole.difference.high
