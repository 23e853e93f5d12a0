"""Reports withhold verdicts on different test sets and on outcomes that settings fix."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.plan.types import AnswerPlan, ArmCheck, Plan
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.types import ArmVerdict, Report
from orchestrator.report.writers.page import html_page
from orchestrator.report.writers.write import as_markdown_report
from orchestrator.trials import Record
from tests.orchestrator.report.comparisons.test_answers import (
    METRICS,
    make_study_plan,
    make_study_records,
    verdict_kinds,
)
from tests.orchestrator.report.studies import with_metrics

OUTCOME = "iid/accuracy"
DEPTH_METRIC = replace(METRICS[1], is_cost=True, high_from="depth_bound", moves_with="depth")
DEPTH_ANSWER = AnswerPlan(("iid/accuracy", "iid/depth"), None, 0.05, 6)


def records_with_digests(digests_of: Callable[[str, int], dict[str, str]]) -> list[Record]:
    """Return records whose trials reported the digests of their splits by arm and seed."""
    return [
        replace(record, attributes=digests_of(record.arm, record.seed)) for record in make_study_records()
    ]


def last_value(trial_record: Record, metric: str) -> float:
    return trial_record.last.metrics[metric]


def find_verdict(report: Report, arm: str, metric: str = OUTCOME) -> ArmVerdict:
    return next(verdict for verdict in report.verdicts if (verdict.arm, verdict.metric) == (arm, metric))


def test_different_test_examples_withhold_the_verdict() -> None:
    report = summarise(
        make_study_plan(),
        records_with_digests(lambda arm, _: {"iid/digest": "b" * 32 if arm == "good" else "a" * 32}),
    )
    assert verdict_kinds(report) == {"good": "undecided", "bad": "worse", "same": "no difference"}
    withheld_verdict = find_verdict(report, "good")
    assert (withheld_verdict.withheld, withheld_verdict.p, withheld_verdict.outlooks) == (
        "different-test-sets",
        None,
        (),
    )
    assert re.search(
        r"good .* iid \(digest bbbbbbbb\) .*baseline \(aaaaaaaa\)", line := withheld_verdict.line
    )
    effect = report.effect("good", OUTCOME)
    assert effect.p is effect.p_sign_flips is None
    assert [(warning.code, warning.arm) for warning in report.warnings] == [("different-test-sets", "good")]
    for text in (as_markdown_report(report, []), html_page(report)):
        assert line in text


@pytest.mark.parametrize(
    "digest",
    [
        lambda _arm, seed: {"iid/digest": str(seed)},
        lambda arm, _seed: {"iid/digest": "same", "far/digest": arm},
        lambda arm, _seed: {"iid/digest": "same"} if arm == "baseline" else {},
    ],
    ids=["one data set a seed", "another split", "of one arm alone"],
)
def test_digests_that_do_not_differ_between_arms_change_no_verdict(
    digest: Callable[[str, int], dict[str, str]],
) -> None:
    plain_report, report = (
        summarise(make_study_plan(), make_study_records()),
        summarise(make_study_plan(), records_with_digests(digest)),
    )
    assert report.verdicts == plain_report.verdicts
    assert report.warnings == ()


def test_missing_digests_are_reported() -> None:
    custom_plan = make_study_plan(trainable="train.py")
    scope = summarise(custom_plan, make_study_records()).interval_scope
    assert scope.unchecked_tests == ("iid",)
    checked_scope = summarise(
        custom_plan, records_with_digests(lambda *_: {"iid/digest": "same"})
    ).interval_scope
    assert checked_scope.unchecked_tests == ()


def make_depth_plan(**fields: object) -> Plan:
    return make_study_plan(answer=DEPTH_ANSWER, metrics=(METRICS[0], DEPTH_METRIC), **fields)


def records_at_depth(arm: str, depth: float) -> list[Record]:
    """Return records in which one arm computes `depth` layers in every seed and split."""
    depth_metrics = {"iid/depth": depth, "far/depth": depth}
    return [
        with_metrics(
            record,
            {"iid/depth_bound": 4.0, "far/depth": last_value(record, "iid/depth")}
            | (depth_metrics if record.arm == arm else {}),
        )
        for record in make_study_records()
    ]


def test_fixed_cost_is_not_tested() -> None:
    report = summarise(make_depth_plan(), records_at_depth("good", 4.0))
    withheld_verdict = find_verdict(report, "good", "iid/depth")
    assert (withheld_verdict.kind, withheld_verdict.withheld, withheld_verdict.p) == (
        "undecided",
        "fixed-by-construction",
        None,
    )
    assert withheld_verdict.difference is not None
    assert [(warning.code, warning.arm, warning.outcome) for warning in report.warnings] == [
        ("fixed-by-construction", "good", "iid/depth")
    ]
    assert find_verdict(report, "good").kind == "better", "accuracy is tested"
    assert not find_verdict(report, "bad", "iid/depth").withheld


@pytest.mark.parametrize("case", ["halts", "another split differs", "no cost"])
def test_trained_outcomes_are_tested(case: str) -> None:
    depth_plan, depth_records = make_depth_plan(), records_at_depth("good", 2.0)
    if case == "halts":
        check = ArmCheck("good", 1, (), (), 1e6, 4e6, 1.0, 1.0, functional_change=True)
        depth_plan = replace(depth_plan, proofs=(check,))
    elif case == "no cost":
        depth_plan = replace(depth_plan, metrics=METRICS)
    else:
        depth_records = [
            with_metrics(record, {"far/depth": 2.5}) if record.arm == "good" else record
            for record in depth_records
        ]
    assert not find_verdict(summarise(depth_plan, depth_records), "good", "iid/depth").withheld
