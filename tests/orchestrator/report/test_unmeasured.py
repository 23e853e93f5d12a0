"""Seeds that finished without a primary outcome: the other seeds give no verdict."""

import csv
import io
from dataclasses import replace

from orchestrator.report.results.tracked_values import arm_metrics
from orchestrator.report.results.types import Report
from orchestrator.report.results.winner import find_winner
from orchestrator.report.writers.csv_file import as_csv
from orchestrator.report.writers.json_file import as_json
from orchestrator.report.writers.tables import screen_table
from orchestrator.report.writers.write import as_markdown_report
from tests.orchestrator.report.studies import SPLITS, Study, make_study, remove_metrics

OUTCOME, SECOND_OUTCOME = f"{SPLITS[0]}/accuracy", f"{SPLITS[0]}/loss"


def study_without_outcome(
    arm: str = "arm-1", seeds: tuple[int, ...] = (101, 102, 103), outcome: str = OUTCOME
) -> Study:
    base_study = make_study(2, seeds=8, trials=0, thresholds=())
    return remove_metrics(base_study, [outcome], lambda record: record.arm == arm and record.seed in seeds)


def with_two_outcomes(base_study: Study) -> Study:
    assert base_study.plan.answer is not None
    answer = replace(base_study.plan.answer, outcomes=(OUTCOME, SECOND_OUTCOME), family=2)
    return replace(base_study, plan=replace(base_study.plan, answer=answer))


def outcome_row(report: Report) -> dict[str, str]:
    rows = csv.DictReader(io.StringIO(as_csv(report)))
    return next(row for row in rows if (row["arm"], row["metric"]) == ("arm-1", OUTCOME))


def test_all_outputs_withhold_the_verdict() -> None:
    complete_report = make_study(2, seeds=8, trials=0, thresholds=()).report()
    assert outcome_row(complete_report)["verdict"] == "worse", "eight seeds decide it"
    tested_study = study_without_outcome()
    report = tested_study.report()
    (verdict,) = report.verdicts
    assert (verdict.kind, verdict.p, verdict.seeds[:6]) == ("undecided", None, "5 of 8")
    row = [outcome_row(report)[name] for name in ("verdict", "p", "p_sign_flips", "n", "failed")]
    assert row == [verdict.text, "", "", "5", "3"]
    metrics_of_arm = arm_metrics(report)["arm-1"]
    assert metrics_of_arm["answer/n"] == 5
    assert "answer/p" not in metrics_of_arm, "the interval may exclude 0, so that p = 1 would contradict it"
    assert (metrics_of_arm["seeds_finished"], metrics_of_arm["seeds_failed"]) == (5, 3)
    assert screen_table(report).rows[1][1].startswith("5 of 8 ")
    for text in (as_json(report, tested_study.details()), as_markdown_report(report, [])):
        assert verdict.text in text


def test_missing_outcome_does_not_affect_other_outcomes() -> None:
    tested_study = with_two_outcomes(
        study_without_outcome(seeds=tuple(range(101, 109)), outcome=SECOND_OUTCOME)
    )
    first_verdict, second_verdict = tested_study.report().verdicts
    assert (first_verdict.kind, first_verdict.seeds[:6]) == ("worse", "8 of 8")
    assert (second_verdict.kind, second_verdict.seeds[:6]) == ("undecided", "0 of 8")


def test_best_arm_has_no_failed_seeds() -> None:
    tested_study = study_without_outcome("arm-0", (101,))
    assert find_winner(tested_study.plan, tested_study.records, tested_study.report()).arm == "arm-1"
