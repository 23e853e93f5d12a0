"""Published values appear next to the results of the same arm, cell, setting, split and metric."""

import csv
import io
from dataclasses import replace
from typing import Any

from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.types import Plan
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.types import Report
from orchestrator.report.writers.csv_file import as_csv
from orchestrator.report.writers.tables import all_tables
from orchestrator.trials import OutcomeKind, Record
from tests.orchestrator.report.results.test_summary import build_plan, build_records

WIDTHS = (8, 16)
HALF_STOP = {"model.stop": "half"}


def published_row(**fields: Any) -> dict[str, Any]:
    default_fields = {
        "arm": "other",
        "split": "iid",
        "metric": "accuracy",
        "value": 0.75,
        "source": "a paper, Table 1",
    }
    return default_fields | fields


def build_cell_plan(*rows: dict[str, Any], has_posthoc: bool = False) -> Plan:
    """Return a plan with two cells and these published rows."""
    arms = [
        replace(
            arm, name=f"{arm.name}[model.width={width}]", settings={"model": {"width": width}}, reference=""
        )
        for arm in build_plan().arms
        for width in WIDTHS
    ]
    return replace(
        build_plan(), arms=tuple(arms), published=rows, posthoc=(HALF_STOP,) if has_posthoc else ()
    )


def build_cell_records(plan: Plan) -> list[Record]:
    """Return records of all arms, as trained and, if planned, re-evaluated."""
    trained_records = [
        replace(record, arm=arm.name, trial_id=f"{arm.name}-{record.seed}")
        for arm in plan.arms
        for record in build_records()
        if arm.name.startswith(f"{record.arm}[")
    ]
    reevaluation_records = [
        replace(trial, phase="posthoc", overrides=dict(overrides), trial_id=f"{trial.trial_id}-again")
        for overrides in plan.posthoc
        for trial in trained_records
    ]
    return [*trained_records, *reevaluation_records]


def build_report(*rows: dict[str, Any], has_posthoc: bool = False) -> Report:
    plan = build_cell_plan(*rows, has_posthoc=has_posthoc)
    assert from_json(to_json(plan)) == plan
    return summarise(plan, build_cell_records(plan))


def published_cells(report: Report) -> list[tuple[str, str, str, float]]:
    """Return arm, setting, metric and value of all cells with a published mean."""
    return [
        (cell.arm, cell.setting, cell.metric, cell.published)
        for cell in (*report.cells, *report.posthoc)
        if cell.published is not None
    ]


def test_published_value_appears_only_at_its_cell() -> None:
    report = build_report(published_row(cell={"model.width": 16}), has_posthoc=True)
    assert published_cells(report) == [("other[model.width=16]", "", "iid/accuracy", 0.75)]


def test_published_value_of_a_re_evaluation_appears_only_there() -> None:
    report = build_report(published_row(cell={"model.width": 8}, posthoc=HALF_STOP), has_posthoc=True)
    assert published_cells(report) == [("other[model.width=8]", "model.stop=half", "iid/accuracy", 0.75)]


def test_published_median_appears_next_to_the_measured_median() -> None:
    cell = {"model.width": 8}
    report = build_report(
        published_row(cell=cell, std=0.02),
        published_row(cell=cell, statistic="median", value=0.8, source="Table 2"),
    )
    measured_cell = report.cell("other[model.width=8]", "iid/accuracy")
    assert (
        measured_cell.published,
        measured_cell.published_std,
        measured_cell.published_median,
        measured_cell.median,
    ) == (0.75, 0.02, 0.8, 0.52)
    assert measured_cell.published_source == "a paper, Table 1; Table 2"
    (row,) = [row for row in csv.DictReader(io.StringIO(as_csv(report))) if row["published"]]
    assert (row["published_std"], row["median"], row["published_median"]) == ("0.02", "0.52", "0.8")


def test_published_system_without_an_arm_has_a_row() -> None:
    lstm_row = published_row(arm="LSTM", alone=True, std=0.01)
    report = build_report(
        lstm_row, published_row(arm="T5", alone=True, statistic="median", cell={"model.width": 8})
    )
    assert published_cells(report) == []
    (table,) = [
        result_table for result_table in all_tables(report) if result_table.title.startswith("accuracy (")
    ]
    assert table.rows[-2:] == (
        ("LSTM, published", "0.750 ± 0.010", ""),
        ("T5[model.width=8], published median", "0.750", ""),
    )


def test_unmatched_published_values_are_noted() -> None:
    plan = build_cell_plan(
        published_row(arm="LSTM", alone=True, split="never-read"),
        published_row(cell={"model.width": 8}),
        published_row(cell={"model.width": 8}, posthoc=HALF_STOP, value=0.5),
        published_row(cell={"model.width": 16}, metric="accuracy", value=0.25),
        has_posthoc=True,
    )
    failed_records = [
        replace(record, outcome=OutcomeKind.CRASHED, last=None)
        if record.arm == "other[model.width=8]" and record.phase == "confirm"
        else record
        for record in build_cell_records(plan)
    ]
    report = summarise(plan, failed_records)
    assert [(value.system, value.metric) for value in report.unmet_published] == [
        ("LSTM", "never-read/accuracy"),
        ("other[model.width=8]", "iid/accuracy"),
    ]
    assert not summarise(plan, build_cell_records(plan)).unmet_published[1:]


def test_published_sizes_are_reported_once_per_system() -> None:
    transformer_row = {"parameters": 65e6, "macs": 604e6, "alone": True, "arm": "Transformer base"}
    report = build_report(
        published_row(parameters=66e6),
        published_row(split="far", parameters=66e6),
        published_row(**transformer_row),
        published_row(metric="loss"),
    )
    assert [(size.system, size.parameters, size.macs) for size in report.published_sizes] == [
        ("other", 66e6, None),
        ("Transformer base", 65e6, 604e6),
    ]
