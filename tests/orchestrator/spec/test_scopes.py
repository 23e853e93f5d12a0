"""The scope of an objective determines which reports of a trial count."""

from collections.abc import Sequence
from typing import Literal

import pytest

from orchestrator.spec.scopes import CountedReports
from orchestrator.spec.section import Objective
from trainables.protocol import Measurement

OVERFITS = (0.5, 0.9, 0.8, 0.7, 0.6)


def count_reports(
    values: Sequence[float], scope: str, goal: Literal["max", "min"] = "max", name: str = "valid/accuracy"
) -> CountedReports:
    reports = CountedReports([Objective(metric=name, goal=goal, scope=scope)])
    for step, value in enumerate(values, start=1):
        reports.add(Measurement(step, float(step), {name: value, "train/loss": 1 - value}))
    return reports


@pytest.mark.parametrize(
    ("scope", "goal", "value"),
    [
        ("last", "max", 0.6),
        ("best", "max", 0.9),
        ("best", "min", 0.5),
        ("mean-of-last-3", "max", (0.8 + 0.7 + 0.6) / 3),
        ("mean-of-last-100", "min", sum(OVERFITS) / 5),
    ],
)
def test_values_by_scope(scope: str, goal: Literal["max", "min"], value: float) -> None:
    reports = count_reports(OVERFITS, scope, goal)
    assert reports.objective_values == pytest.approx((value,))
    assert reports.reports == 5


def test_best_report_is_a_whole_report_and_the_earliest_of_equals() -> None:
    reports = count_reports((0.5, 0.9, 0.9, 0.1), "best")
    assert reports.measurement.step == 2
    assert reports.measurement.metrics["train/loss"] == pytest.approx(0.1)


def test_each_objective_has_a_separate_scope() -> None:
    reports = CountedReports(
        [
            Objective(metric="eval_loss", goal="min"),
            Objective(metric="cost", goal="min", scope="mean-of-last-2"),
        ]
    )
    for step in (1, 2, 3):
        assert reports.add(Measurement(step, 1.0, {"eval_loss": float(step), "cost": 10.0 * step}))
    assert reports.objective_values == (3.0, 25.0)


def test_report_without_an_objective_does_not_count() -> None:
    reports = count_reports((0.5, 0.7), "mean-of-last-2")
    assert not reports.add(Measurement(3, 3.0, {"train/loss": 0.0}))
    assert reports.objective_values == pytest.approx((0.6,))
    assert reports.reports == 2


def test_no_value_exists_before_the_first_report() -> None:
    assert count_reports((), "best").objective_values == ()
