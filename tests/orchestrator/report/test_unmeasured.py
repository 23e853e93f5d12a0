"""Seeds that finished without a primary outcome: nothing is claimed of the others alone."""

import csv
import io
from dataclasses import replace
from pathlib import Path

from orchestrator.report.results.summary import arm_metrics, arm_tags
from orchestrator.report.results.types import Report
from orchestrator.report.results.winner import find_winner
from orchestrator.report.writers.csv_file import as_csv
from orchestrator.report.writers.json_file import as_json
from orchestrator.report.writers.tables import all_tables, screen_table
from orchestrator.report.writers.write import write_report_folder
from tests.orchestrator.report.studies import SPLITS, Study, make_study, remove_metrics

OUTCOME, OTHER = f"{SPLITS[0]}/accuracy", f"{SPLITS[0]}/loss"
LINE = "undecided: 3 seeds lack a primary outcome; their values could change the verdict"


def lacking(arm: str = "arm-1", seeds: tuple[int, ...] = (101, 102, 103), outcome: str = OUTCOME) -> Study:
    made = make_study(2, seeds=8, trials=0, thresholds=())
    return remove_metrics(made, [outcome], lambda each: each.arm == arm and each.seed in seeds)


def two_outcomes(made: Study) -> Study:
    assert made.plan.answer is not None
    answer = replace(made.plan.answer, outcomes=(OUTCOME, OTHER), family=2)
    return replace(made, plan=replace(made.plan, answer=answer))


def row(report: Report) -> dict[str, str]:
    rows = csv.DictReader(io.StringIO(as_csv(report)))
    return next(row for row in rows if (row["arm"], row["metric"]) == ("arm-1", OUTCOME))


def test_a_verdict_is_withheld_everywhere(tmp_path: Path) -> None:
    whole = make_study(2, seeds=8, trials=0, thresholds=()).report()
    assert row(whole)["verdict"] == "worse", "all of its seeds decide it"
    made = lacking()
    found = made.report()
    (said,) = found.verdicts
    assert (said.kind, said.text, said.p, said.seeds) == ("undecided", LINE, None, "5 of 8 seeds measured it")
    assert (row(found)["verdict"], row(found)["p"], row(found)["p_sign_flips"]) == (LINE, "", "")
    assert (row(found)["n"], row(found)["failed"]) == ("5", "3")
    tracked = arm_metrics(found)["arm-1"]
    assert tracked["answer/n"] == 5
    assert "answer/p" not in tracked, "its interval may leave out 0, beside which no p may say 1"
    extended = arm_metrics(replace(found, extensions=("Seeds were added.",)))["arm-1"]
    assert extended["answer/p"] == 1.0, "another may have been told before, and must not stay"
    assert (tracked["seeds_finished"], tracked["seeds_failed"]) == (5, 3)
    assert arm_tags(found)["arm-1"]["verdict"] == said.line
    assert screen_table(found).rows[1][:2] == ("arm-1", "5 of 8 measured")
    by_title = {grid.title: {row[0]: row for row in grid.rows} for grid in all_tables(found)}
    assert by_title[f"{OUTCOME}, seed by seed"]["arm-1"][1:4] == ("not measured",) * 3
    results = next(rows for title, rows in by_title.items() if title.startswith("accuracy (share"))
    assert results["arm-1"][1].endswith("(5 of 8 measured)")
    assert LINE in as_json(found, made.details())
    write_report_folder(found, tmp_path, made.details())
    for name in ("report.md", "report.html"):
        text = (tmp_path / name).read_text()
        assert LINE in text


def test_an_arm_that_never_measured_it_has_no_seeds() -> None:
    (said,) = lacking(seeds=tuple(range(101, 109))).report().verdicts
    assert (said.kind, said.seeds) == ("undecided", "0 of 8 seeds measured it")


def test_an_outcome_that_an_arm_cannot_measure_leaves_its_others_alone() -> None:
    made = two_outcomes(lacking(seeds=tuple(range(101, 109)), outcome=OTHER))
    first, second = made.report().verdicts
    assert (first.kind, first.seeds) == ("worse", "8 of 8 seeds finished")
    assert second.text == "undecided: no seed of arm-1 measured it"
    assert second.seeds == "0 of 8 seeds measured it"


def test_best_arm_has_no_failed_seeds() -> None:
    made = lacking("arm-0", (101,))
    assert find_winner(made.plan, made.records, made.report()).arm == "arm-1"
