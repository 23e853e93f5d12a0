"""Tables show every seed that failed in training or in a re-evaluation."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.report.results.types import Grid
from orchestrator.report.writers.tables import cost_tables
from orchestrator.report.writers.write import write_report_folder
from orchestrator.trials import OutcomeKind, Record
from tests.orchestrator.report.studies import METRICS, SPLITS, THRESHOLD, Study, make_study

OUTCOME = f"{SPLITS[0]}/accuracy"


def study_with_crashes(
    value: float | None, seeds: Collection[int], phases: Collection[str] = ("posthoc",)
) -> Study:
    """Return a study where trials of the last arm crash, at one threshold or at all."""
    base_study = make_study(2, seeds=8, trials=0)

    def crash_if_selected(record: Record) -> Record:
        is_selected = value is None or record.overrides.get(THRESHOLD) == value
        if record.arm == "arm-1" and record.seed in seeds and record.phase in phases and is_selected:
            return replace(record, outcome=OutcomeKind.CRASHED, last=None)
        return record

    plan = replace(base_study.plan, metrics=tuple(replace(metric, meaning=metric.name) for metric in METRICS))
    return replace(base_study, plan=plan, records=tuple(map(crash_if_selected, base_study.records)))


def rows_by_setting(tested_study: Study, title: str) -> dict[tuple[str, str], tuple[str, ...]]:
    (table,) = [table for table in cost_tables(tested_study.report()) if title in table.title]
    assert isinstance(table, Grid)
    return {row[:2]: row[2:] for row in table.rows}


@pytest.mark.usefixtures("undrawn")
def test_failed_reevaluations_have_a_row(tmp_path: Path) -> None:
    tested_study = study_with_crashes(0.6, range(101, 109))
    rows = rows_by_setting(tested_study, "re-evaluated")
    assert set(rows["arm-1", f"{THRESHOLD}=0.6"]) == {"0 of 8 finished"}
    assert rows["arm-1", f"{THRESHOLD}=0.9"][0].endswith("(8)")
    assert [arm for arm, _ in rows] == ["arm-0"] * 3 + ["arm-1"] * 3
    write_report_folder(tested_study.report(), tmp_path, tested_study.details())
    for name in ("report.md", "report.html"):
        assert "0 of 8 finished" in (tmp_path / name).read_text()


def test_metrics_of_reevaluations_have_a_column() -> None:
    tested_study, name = make_study(2, seeds=3, trials=0), f"{SPLITS[0]}/calibration"

    def add_metric(record: Record) -> Record:
        if record.phase != "posthoc" or record.last is None:
            return record
        return replace(record, last=replace(record.last, metrics={**record.last.metrics, name: 0.25}))

    report = replace(tested_study, records=tuple(map(add_metric, tested_study.records))).report()
    assert report.metrics == tested_study.report().metrics
    (table, *_) = cost_tables(report)
    assert table.headers[-1] == name
    assert {row[-1] for row in table.rows} == {"0.250 (3)"}


@pytest.mark.parametrize("num_failed", [0, 5])
def test_failed_seeds_prevent_an_estimate_at_equal_cost(num_failed: int) -> None:
    (equal_cost,) = (
        study_with_crashes(None, range(101, 101 + num_failed), ("confirm", "posthoc")).report().equal_costs
    )
    assert (equal_cost.reached, equal_cost.seeds) == (8 - num_failed, 8)
    assert (equal_cost.equal is None) == bool(num_failed)
    assert equal_cost.as_trained.n == 8 - num_failed
    row = rows_by_setting(
        study_with_crashes(None, range(101, 101 + num_failed), ("confirm", "posthoc")),
        "at the cost of their references",
    )
    row_texts = row["arm-1", OUTCOME]
    assert row_texts[-2].endswith("(3 of 8 finished)" if num_failed else "(8)")
    assert (row_texts[-1] == "unknown: 3 of 8 seeds reach this cost") == bool(num_failed)
