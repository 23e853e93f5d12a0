"""Seeds that failed when checkpoints were read again, or before: no table forgets them."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.report.results.types import Grid
from orchestrator.report.writers.tables import cost_tables
from orchestrator.report.writers.write import write_report_folder
from orchestrator.trials import OutcomeKind, Record
from tests.orchestrator.report.studies import METRICS, SPLITS, THRESHOLD, Study, study

OUTCOME = f"{SPLITS[0]}/accuracy"


def failing(value: float | None, seeds: Collection[int], phases: Collection[str] = ("posthoc",)) -> Study:
    """Trials of the last arm that crash, readings at one threshold or at all."""
    made = study(2, seeds=8, trials=0)

    def mutated(each: Record) -> Record:
        read = value is None or each.overrides.get(THRESHOLD) == value
        if each.arm == "arm-1" and each.seed in seeds and each.phase in phases and read:
            return replace(each, outcome=OutcomeKind.CRASHED, last=None)
        return each

    plan = replace(made.plan, metrics=tuple(replace(metric, meaning=metric.name) for metric in METRICS))
    return replace(made, plan=plan, records=tuple(map(mutated, made.records)))


def rows(found: Study, title: str) -> dict[tuple[str, str], tuple[str, ...]]:
    (grid,) = [cost_table for cost_table in cost_tables(found.report()) if title in cost_table.title]
    assert isinstance(grid, Grid)
    return {row[:2]: row[2:] for row in grid.rows}


@pytest.mark.usefixtures("undrawn")
def test_failed_reevaluations_have_a_row(tmp_path: Path) -> None:
    made = failing(0.6, range(101, 109))
    read = rows(made, "re-evaluated")
    assert set(read["arm-1", f"{THRESHOLD}=0.6"]) == {"0 of 8 finished"}
    assert read["arm-1", f"{THRESHOLD}=0.9"][0].endswith("(8)")
    assert [arm for arm, _ in read] == ["arm-0"] * 3 + ["arm-1"] * 3
    write_report_folder(made.report(), tmp_path, made.details())
    for name in ("report.md", "report.html"):
        assert "0 of 8 finished" in (tmp_path / name).read_text()


def test_metrics_of_reevaluations_have_a_column() -> None:
    made, name = study(2, seeds=3, trials=0), f"{SPLITS[0]}/calibration"

    def read_again(each: Record) -> Record:
        if each.phase != "posthoc" or each.last is None:
            return each
        return replace(each, last=replace(each.last, metrics={**each.last.metrics, name: 0.25}))

    report = replace(made, records=tuple(map(read_again, made.records))).report()
    assert report.metrics == made.report().metrics
    (table, *_) = cost_tables(report)
    assert table.headers[-1] == name
    assert {row[-1] for row in table.rows} == {"0.250 (3)"}


@pytest.mark.parametrize("failed", [0, 5])
def test_failed_seeds_prevent_an_estimate_at_equal_cost(failed: int) -> None:
    (found,) = failing(None, range(101, 101 + failed), ("confirm", "posthoc")).report().equal_costs
    assert (found.reached, found.seeds) == (8 - failed, 8)
    assert (found.equal is None) == bool(failed)
    assert found.as_trained.n == 8 - failed
    row = rows(
        failing(None, range(101, 101 + failed), ("confirm", "posthoc")), "at the cost of their references"
    )
    said = row["arm-1", OUTCOME]
    assert said[-2].endswith("(3 of 8 finished)" if failed else "(8)")
    assert (said[-1] == "unknown: 3 of 8 seeds reach this cost") == bool(failed)
