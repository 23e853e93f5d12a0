"""Warnings before the answer of a report."""

import re
from dataclasses import replace

import pytest

from orchestrator.report.caveats.warning_texts import (
    EQUAL_SEARCH_TRIALS_WARNING,
    FEWER_TRIALS_WARNING,
    TEST_DATA_IN_SEARCH_WARNING,
    warning_texts,
)
from orchestrator.report.results.types import Report
from tests.orchestrator.report.studies import make_study, with_metrics
from trainables.protocol import Measurement

NUM_TRIALS = 10


def choice_warnings(kind: str, outcomes: dict[str, dict[str, int]]) -> list[str]:
    """Return the warnings about choices if arm-1 is `kind` and its search trials have these outcomes."""
    report = make_study(2, 4, NUM_TRIALS, thresholds=()).report()
    tallies = tuple(
        replace(tally, outcomes={**tally.outcomes, "search": outcomes[tally.arm]}) for tally in report.tallies
    )
    verdicts = tuple(replace(verdict, kind=kind) for verdict in report.verdicts)
    lines = warning_texts(replace(report, tallies=tallies, verdicts=verdicts))
    clause = FEWER_TRIALS_WARNING.partition("{fewer}")[2].partition("{kept}")[0]
    return [line for line in lines if clause in line]


def failure_warnings(kind: str, num_failed: dict[str, int]) -> list[str]:
    """Return the warnings about choices if this number of search trials failed."""
    counts = {arm: num_failed.get(arm, 0) for arm in ("arm-0", "arm-1")}
    return choice_warnings(
        kind, {arm: {"crashed": count, "finished": NUM_TRIALS - count} for arm, count in counts.items()}
    )


@pytest.mark.parametrize(
    ("kind", "num_failed"),
    [
        ("worse", {"arm-1": 8}),
        ("better", {"arm-0": 8}),
        ("no difference", {"arm-1": 8}),
        ("worse", {"arm-1": 2}),
    ],
)
def test_failed_search_trials_are_a_warning(kind: str, num_failed: dict[str, int]) -> None:
    [warning] = failure_warnings(kind, num_failed)
    arm = max(num_failed, key=num_failed.__getitem__)
    assert re.search(rf"{arm} .*{NUM_TRIALS - num_failed[arm]} .*{NUM_TRIALS} ", warning)


@pytest.mark.parametrize(
    ("kind", "num_failed"),
    [("worse", {"arm-1": 1}), ("worse", {"arm-1": 8, "arm-0": 8}), ("better", {"arm-1": 8})],
)
def test_harmless_failures_of_search_trials_are_no_warning(kind: str, num_failed: dict[str, int]) -> None:
    """Failures are harmless if they are few or equally frequent, or if they cannot explain the verdict."""
    assert not failure_warnings(kind, num_failed)


def test_skipped_trials_are_not_failed() -> None:
    assert not choice_warnings("worse", {"arm-0": {"finished": 10}, "arm-1": {"finished": 2, "skipped": 8}})


def report_with_equal_searches(*arms: str) -> Report:
    """Return a report where all search trials of these arms measured the same value."""
    base_study = make_study(2, 4, NUM_TRIALS, thresholds=())
    constant_measurement = Measurement(1, 1.0, {"valid/accuracy": 1.0})
    records = [
        replace(record, last=constant_measurement)
        if record.phase == "search" and record.arm in arms
        else record
        for record in base_study.records
    ]
    return replace(base_study, records=tuple(records)).report()


@pytest.mark.parametrize(
    ("kind", "arms", "expected_arms"),
    [
        ("worse", ("arm-1",), ["arm-1"]),
        ("no difference", ("arm-0", "arm-1"), ["arm-1", "arm-0"]),
        ("worse", ("arm-0",), []),
    ],
)
def test_equal_search_trials_are_a_warning(
    kind: str, arms: tuple[str, ...], expected_arms: list[str]
) -> None:
    report = report_with_equal_searches(*arms)
    verdicts = tuple(replace(verdict, kind=kind) for verdict in report.verdicts)
    clause = EQUAL_SEARCH_TRIALS_WARNING.partition("{objectives}")[2].partition("{claim}")[0]
    warnings = [text for text in warning_texts(replace(report, verdicts=verdicts)) if clause in text]
    assert [re.search(r"arm-\d", text).group() for text in warnings] == expected_arms


def search_metric_warnings(metric: str) -> list[str]:
    """Return the warnings if the search trials also measured `metric`."""
    base_study = make_study(2, 4, NUM_TRIALS, thresholds=())
    records = [
        with_metrics(record, {metric: 0.5}) if record.phase == "search" and record.last else record
        for record in base_study.records
    ]
    return warning_texts(replace(base_study, records=tuple(records)).report())


def test_test_splits_measured_in_search_are_a_warning() -> None:
    warning = TEST_DATA_IN_SEARCH_WARNING.format(splits="near-iid")
    assert warning in search_metric_warnings("near-iid/accuracy")
    assert warning not in search_metric_warnings("other/accuracy")
