"""What is told before the answer of a report."""

from dataclasses import replace

import pytest

from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.results.types import Report
from tests.orchestrator.report.studies import study
from trainables.protocol import Measurement

TRIALS = 10


def told_of(kind: str, outcomes: dict[str, dict[str, int]]) -> list[str]:
    """Of an arm that is `kind` beside arm-0, where the search trials of each ended so."""
    report = study(2, 4, TRIALS, thresholds=()).report()
    tallies = tuple(
        replace(tally, outcomes={**tally.outcomes, "search": outcomes[tally.arm]}) for tally in report.tallies
    )
    verdicts = tuple(replace(verdict, kind=kind) for verdict in report.verdicts)
    found = warning_texts(replace(report, tallies=tallies, verdicts=verdicts))
    return [line for line in found if "were chosen from" in line]


def reported(kind: str, failed: dict[str, int]) -> list[str]:
    """The same, where so many of them failed."""
    counts = {arm: failed.get(arm, 0) for arm in ("arm-0", "arm-1")}
    return told_of(kind, {arm: {"crashed": bad, "finished": TRIALS - bad} for arm, bad in counts.items()})


@pytest.mark.parametrize(
    ("kind", "failed"),
    [
        ("worse", {"arm-1": 8}),
        ("better", {"arm-0": 8}),
        ("no difference", {"arm-1": 8}),
        ("no difference", {"arm-0": 8}),
        ("higher", {"arm-1": 8}),
        ("worse", {"arm-1": 9, "arm-0": 3}),
        ("worse", {"arm-1": 2}),
    ],
)
def test_failed_search_trials_are_a_warning(kind: str, failed: dict[str, int]) -> None:
    [notice] = reported(kind, failed)
    fewer = max(failed, key=failed.__getitem__)
    assert f"{fewer} were chosen from {TRIALS - failed[fewer]} of its {TRIALS} search trials" in notice


@pytest.mark.parametrize(
    ("kind", "failed"),
    [
        ("worse", {}),
        ("worse", {"arm-1": 1}),
        ("worse", {"arm-1": 8, "arm-0": 8}),
        ("worse", {"arm-0": 8}),
        ("better", {"arm-1": 8}),
        ("undecided", {"arm-1": 8}),
    ],
)
def test_harmless_failures_of_search_trials_are_no_warning(kind: str, failed: dict[str, int]) -> None:
    """Few of them, as many of both, of the arm that is ahead all the same; or nothing is claimed."""
    assert not reported(kind, failed)


def test_arm_without_search_is_no_warning() -> None:
    assert not told_of("worse", {"arm-0": {"finished": 1}, "arm-1": {"finished": 2, "crashed": 8}})


def test_skipped_trials_are_not_failed() -> None:
    assert not told_of("worse", {"arm-0": {"finished": 10}, "arm-1": {"finished": 2, "skipped": 8}})
    [notice] = told_of(
        "worse", {"arm-0": {"finished": 10}, "arm-1": {"crashed": 3, "pruned": 2, "skipped": 5}}
    )
    assert (
        "chosen from 2 of its 5 search trials, because the others failed, and those of arm-0 from all 10"
        in notice
    )


def searched_alike(*arms: str) -> Report:
    """Of a study where every search trial of these arms measured one value."""
    made = study(2, 4, TRIALS, thresholds=())
    alike = Measurement(1, 1.0, {"valid/accuracy": 1.0})
    records = [
        replace(record, last=alike) if record.phase == "search" and record.arm in arms else record
        for record in made.records
    ]
    return replace(made, records=tuple(records)).report()


@pytest.mark.parametrize(
    ("kind", "arms", "named"),
    [
        ("worse", ("arm-1",), ["arm-1"]),
        ("better", ("arm-0",), ["arm-0"]),
        ("no difference", ("arm-0", "arm-1"), ["arm-1", "arm-0"]),
        ("higher", ("arm-0",), ["arm-0"]),
        ("worse", ("arm-0",), []),
        ("better", ("arm-1",), []),
        ("undecided", ("arm-0", "arm-1"), []),
        ("worse", (), []),
    ],
)
def test_equal_search_trials_are_a_warning(kind: str, arms: tuple[str, ...], named: list[str]) -> None:
    report = searched_alike(*arms)
    verdicts = tuple(replace(verdict, kind=kind) for verdict in report.verdicts)
    found = [
        warning_text
        for warning_text in warning_texts(replace(report, verdicts=verdicts))
        if "was arbitrary" in warning_text
    ]
    assert [line.partition(" measured")[0].rpartition(" ")[2] for line in found] == named


def test_repeated_params_are_no_warning() -> None:
    made = study(2, 4, TRIALS, thresholds=())
    alike = Measurement(1, 1.0, {"valid/accuracy": 1.0})
    records = [
        replace(record, last=alike, assignment={"x": 1}) if record.phase == "search" else record
        for record in made.records
    ]
    assert replace(made, records=tuple(records)).report().unranked == {}


def searched_with(metric: str) -> list[str]:
    """Notices of a study whose search trials measured this as well."""
    made = study(2, 4, TRIALS, thresholds=())
    records = [
        replace(record, last=replace(record.last, metrics={**record.last.metrics, metric: 0.5}))
        if record.phase == "search" and record.last
        else record
        for record in made.records
    ]
    return [
        warning_text
        for warning_text in warning_texts(replace(made, records=tuple(records)).report())
        if "Search trials measured" in warning_text
    ]


def test_test_splits_measured_in_search_are_a_warning() -> None:
    split = study(2, 4, TRIALS, thresholds=()).plan.confirm.splits[0]
    [notice] = searched_with(f"{split}/accuracy")
    assert split in notice


@pytest.mark.parametrize("metric", ["valid/accuracy", "score", "other/accuracy"])
def test_other_metrics_in_search_are_no_warning(metric: str) -> None:
    assert not searched_with(metric)
