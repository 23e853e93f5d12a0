"""Verdicts of arms with failed seeds stand only if every possible value gives the same verdict."""

import json
from dataclasses import replace

from orchestrator.report.results.summary import summarise
from orchestrator.report.writers.json_file import as_json
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.studies import METRICS, SPLITS, make_study
from trainables.metrics import Metric

OUTCOME = f"{SPLITS[0]}/accuracy"
FAILED_SEED = 103


def report_with_failed_seed(failed_arm: str, difference: float = 0.5, metrics=METRICS):
    """Return a report where the second arm is worse by `difference` and one seed of `failed_arm` diverged."""
    base_study = make_study(2, seeds=8, trials=0, thresholds=())
    records = []
    for record in base_study.records:
        value = record.last.metrics[OUTCOME] - (difference - 0.03) * (record.arm == "arm-1")
        last = replace(record.last, metrics={**record.last.metrics, OUTCOME: value})
        is_failed = (record.arm, record.seed) == (failed_arm, FAILED_SEED)
        records.append(
            replace(record, last=last, outcome=OutcomeKind.DIVERGED if is_failed else OutcomeKind.FINISHED)
        )
    return summarise(replace(base_study.plan, metrics=metrics), records)


def test_clear_verdict_survives_a_failed_seed():
    report = report_with_failed_seed("arm-1")
    [verdict] = report.verdicts
    assert (verdict.kind, verdict.missing) == ("worse", 1)
    assert verdict.seeds.startswith("7 of 8 ")
    assert verdict.p <= 0.05
    assert verdict.difference.high < 0
    assert verdict.difference.n == 7
    effect = report.effect("arm-1", OUTCOME)
    assert (effect.p, effect.estimate) == (verdict.p, verdict.difference)
    assert effect.p_sign_flips is None, "the sign-flip test needs all values"
    assert json.loads(as_json(report))["verdicts"][0]["missing"] == 1


def test_small_difference_is_withheld_with_a_reason():
    [verdict] = report_with_failed_seed("arm-1", difference=0.05).verdicts
    assert (verdict.kind, verdict.missing, verdict.p) == ("undecided", 0, None)
    assert "1 seed" in verdict.text


def test_metric_without_a_range_has_no_verdict():
    metrics_without_range = (Metric("accuracy", "max", low=0.0, shown=("table", "headline")), *METRICS[1:])
    [verdict] = report_with_failed_seed("arm-1", metrics=metrics_without_range).verdicts
    assert (verdict.kind, verdict.missing, verdict.p) == ("undecided", 0, None)
    assert OUTCOME in verdict.text
