"""Tables show every seed that failed in training or in a re-evaluation."""

from dataclasses import replace

from orchestrator.report.writers.tables import cost_tables
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.studies import THRESHOLD, make_study


def test_failed_reevaluations_have_a_row() -> None:
    base_study = make_study(2, seeds=8, trials=0)
    records = [
        replace(record, outcome=OutcomeKind.CRASHED, last=None)
        if record.arm == "arm-1" and record.overrides.get(THRESHOLD) == 0.6
        else record
        for record in base_study.records
    ]
    report = replace(base_study, records=tuple(records)).report()
    (table,) = [table for table in cost_tables(report) if "re-evaluated" in table.title]
    rows = {row[:2]: row[2:] for row in table.rows}
    assert all(cell.startswith("0 of 8 ") for cell in rows["arm-1", f"{THRESHOLD}=0.6"])
    assert rows["arm-1", f"{THRESHOLD}=0.9"][0].endswith("(8)")
    assert [arm for arm, _ in rows] == ["arm-0"] * 3 + ["arm-1"] * 3
