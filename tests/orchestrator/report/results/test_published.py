"""Published values stand beside the reading they belong to: by arm, cell, setting, split and metric."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.types import Plan
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.types import Report
from orchestrator.report.writers.csv_file import as_csv
from orchestrator.report.writers.tables import all_tables
from orchestrator.report.writers.write import write_report_folder
from orchestrator.trials import OutcomeKind, Record
from tests.orchestrator.report.results.test_summary import plan, records

WIDTHS = (8, 16)
HALF = {"model.stop": "half"}


def row(**said: Any) -> dict[str, Any]:
    whole = {
        "arm": "other",
        "split": "iid",
        "metric": "accuracy",
        "value": 0.75,
        "source": "a paper, Table 1",
    }
    return whole | said


def crossed(*rows: dict[str, Any], posthoc: bool = False) -> Plan:
    """The plan with two cells, and with `rows` of published tables."""
    arms = [
        replace(
            arm, name=f"{arm.name}[model.width={width}]", settings={"model": {"width": width}}, reference=""
        )
        for arm in plan().arms
        for width in WIDTHS
    ]
    return replace(plan(), arms=tuple(arms), published=rows, posthoc=(HALF,) if posthoc else ())


def ran(asked: Plan) -> list[Record]:
    """All arms of the cells, as trained and, where asked for, as read again."""
    trained = [
        replace(record, arm=arm.name, trial_id=f"{arm.name}-{record.seed}")
        for arm in asked.arms
        for record in records()
        if arm.name.startswith(f"{record.arm}[")
    ]
    again = [
        replace(trial, phase="posthoc", overrides=dict(overrides), trial_id=f"{trial.trial_id}-again")
        for overrides in asked.posthoc
        for trial in trained
    ]
    return [*trained, *again]


def reported(*rows: dict[str, Any], posthoc: bool = False) -> Report:
    asked = crossed(*rows, posthoc=posthoc)
    assert from_json(to_json(asked)) == asked
    return summarise(asked, ran(asked))


def beside(found: Report) -> list[tuple[str, str, str, float]]:
    """Arm, setting, metric and value of all cells that a published mean stands beside."""
    return [
        (cell.arm, cell.setting, cell.metric, cell.published)
        for cell in (*found.cells, *found.posthoc)
        if cell.published is not None
    ]


def test_a_value_of_a_cell_stands_beside_that_cell_alone() -> None:
    found = reported(row(cell={"model.width": 16}))
    assert beside(found) == [("other[model.width=16]", "", "iid/accuracy", 0.75)]


def test_a_value_of_a_later_setting_stands_beside_that_reading_alone() -> None:
    found = reported(row(cell={"model.width": 8}, posthoc=HALF), posthoc=True)
    assert beside(found) == [("other[model.width=8]", "model.stop=half", "iid/accuracy", 0.75)]
    (table,) = [grid for grid in all_tables(found) if grid.title.startswith("re-evaluated checkpoints")]
    place = table.headers.index("iid/accuracy")
    published = [row for row in table.rows if "published" in row[0]]
    assert [(each[:2], each[place]) for each in published] == [
        (("other[model.width=8], published", "model.stop=half"), "0.750")
    ]


def test_a_value_as_trained_stands_beside_no_later_setting() -> None:
    found = reported(row(cell={"model.width": 8}), posthoc=True)
    assert beside(found) == [("other[model.width=8]", "", "iid/accuracy", 0.75)]


def test_a_median_stands_beside_our_median_and_a_mean_with_its_spread() -> None:
    cell = {"model.width": 8}
    found = reported(
        row(cell=cell, std=0.02), row(cell=cell, statistic="median", value=0.8, source="Table 2")
    )
    ours = found.cell("other[model.width=8]", "iid/accuracy")
    assert ours is not None
    assert (ours.published, ours.published_std, ours.published_median, ours.median) == (0.75, 0.02, 0.8, 0.52)
    assert ours.published_source == "a paper, Table 1; Table 2"
    (table,) = [grid for grid in all_tables(found) if grid.title.startswith("accuracy (")]
    shown = {row[0]: row[1] for row in table.rows if row[0].startswith("other[model.width=8],")}
    assert shown == {
        "other[model.width=8], published": "0.750 ± 0.020",
        "other[model.width=8], our median": "0.520",
        "other[model.width=8], published median": "0.800",
    }
    lines = list(csv.DictReader(io.StringIO(as_csv(found))))
    (line,) = [line for line in lines if line["published"]]
    assert (line["published_std"], line["median"], line["published_median"]) == ("0.02", "0.52", "0.8")
    assert all(each["median"] == "" for each in lines if each is not line)


def test_a_system_that_no_arm_is_has_a_row_of_its_own(tmp_path: Path) -> None:
    alone = row(arm="LSTM", alone=True, std=0.01)
    found = reported(alone, row(arm="T5", alone=True, statistic="median", cell={"model.width": 8}))
    assert beside(found) == []
    (table,) = [grid for grid in all_tables(found) if grid.title.startswith("accuracy (")]
    assert table.rows[-2:] == (
        ("LSTM, published", "0.750 ± 0.010", ""),
        ("T5[model.width=8], published median", "0.750", ""),
    )
    text = write_report_folder(found, tmp_path / "report").read_text()
    assert "- Published values of LSTM: a paper, Table 1" in text


def test_a_number_is_the_same_however_it_is_written() -> None:
    found = reported(row(cell={"model.width": 8.0}))
    assert beside(found) == [("other[model.width=8]", "", "iid/accuracy", 0.75)]
    whole = {"model.stop": 1}
    asked = replace(crossed(row(cell={"model.width": 8}, posthoc={"model.stop": 1.0})), posthoc=(whole,))
    again = summarise(asked, ran(asked))
    assert beside(again) == [("other[model.width=8]", "model.stop=1", "iid/accuracy", 0.75)]
    switched = replace(asked, posthoc=({"model.stop": True},))
    assert beside(summarise(switched, ran(switched))) == [], "true is no number"


def test_each_reevaluated_setting_has_a_published_row() -> None:
    rows = [
        row(arm="LSTM", alone=True, value=value, posthoc={"model.stop": stop})
        for value, stop in ((0.75, "half"), (0.5, "none"))
    ]
    (table,) = [grid for grid in all_tables(reported(*rows)) if grid.title.startswith("accuracy (")]
    assert [row[:2] for row in table.rows[-2:]] == [
        ("LSTM, model.stop=half, published", "0.750"),
        ("LSTM, model.stop=none, published", "0.500"),
    ]


def test_unmatched_published_values_are_noted(tmp_path: Path) -> None:
    asked = crossed(
        row(arm="LSTM", alone=True, split="never-read"),
        row(cell={"model.width": 8}),
        row(cell={"model.width": 8}, posthoc=HALF, value=0.5),
        row(cell={"model.width": 16}, metric="accuracy", value=0.25),
        posthoc=True,
    )
    failed = [
        replace(each, outcome=OutcomeKind.CRASHED, last=None)
        if each.arm == "other[model.width=8]" and each.phase == "confirm"
        else each
        for each in ran(asked)
    ]
    found = summarise(asked, failed)
    assert [(each.system, each.metric) for each in found.unmet_published] == [
        ("LSTM", "never-read/accuracy"),
        ("other[model.width=8]", "iid/accuracy"),
    ]
    text = write_report_folder(found, tmp_path / "report").read_text()
    assert "Published values of LSTM" not in text
    shown = text.replace("\\", "")
    assert "LSTM, never-read/accuracy 0.750 (a paper, Table 1)" in shown
    assert "other[model.width=8], iid/accuracy 0.750 (a paper, Table 1)" in shown
    assert not summarise(asked, ran(asked)).unmet_published[1:]


def test_published_sizes_stand_in_a_table_of_their_own_once_a_system() -> None:
    whole = {"parameters": 65e6, "macs": 604e6, "alone": True, "arm": "Transformer base"}
    found = reported(
        row(parameters=66e6), row(split="far", parameters=66e6), row(**whole), row(metric="loss")
    )
    assert [
        (published_size.system, published_size.parameters, published_size.macs)
        for published_size in found.published_sizes
    ] == [
        ("other", 66e6, None),
        ("Transformer base", 65e6, 604e6),
    ]
    (table,) = [all_table for all_table in all_tables(found) if "published sizes" in all_table.title]
    assert [row[:3] for row in table.rows] == [
        ("other", "66,000,000", ""),
        ("Transformer base", "65,000,000", "604,000,000"),
    ]
    assert not [
        all_table for all_table in all_tables(reported(row())) if "published sizes" in all_table.title
    ]
