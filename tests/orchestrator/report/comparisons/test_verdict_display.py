"""Verdicts on the screen: differences of two seeds are listed, and every outcome has its differences."""

import pytest

from orchestrator.plan.types import AnswerPlan, ConfirmPlan
from orchestrator.report.results.summary import summarise
from orchestrator.report.writers.tables import screen_tables
from tests.orchestrator.report.comparisons.test_answers import SEEDS, make_study_plan, make_study_records


@pytest.mark.parametrize(("num_seeds", "has_interval"), [(1, False), (2, False), (3, True)])
def test_line_of_a_verdict_lists_differences_of_two_seeds(num_seeds: int, has_interval: bool) -> None:
    plan = make_study_plan(confirm=ConfirmPlan(1, SEEDS[:num_seeds], ("iid", "far")))
    records = [record for record in make_study_records() if record.seed in SEEDS[:num_seeds]]
    verdict = summarise(plan, records).verdict("good")
    assert verdict is not None
    assert ("[" in verdict.line) == has_interval
    assert verdict.line.endswith(
        f"{num_seeds} of {num_seeds} {'seed' if num_seeds == 1 else 'seeds'} finished)"
    )
    if num_seeds == 2:
        assert " and +0." in verdict.line
        assert " against baseline, 2 of 2 seeds" in verdict.line, "a p of two seeds must not be shown"


def test_screen_shows_the_differences_of_every_outcome() -> None:
    answer = AnswerPlan(("iid/accuracy", "far/accuracy"), 0.02, 0.05, 6)
    report = summarise(make_study_plan(answer=answer), make_study_records())
    means, first, second = screen_tables(report)
    assert means.headers == ("arm", "seeds", "iid/accuracy", "far/accuracy", "iid/depth")
    assert first.title.startswith("difference in iid/accuracy; differences paired by seed, 6 comparisons")
    assert second.title == "difference in far/accuracy"
    for table in (first, second):
        assert [row[0] for row in table.rows] == ["good", "bad", "same"]
        assert all("[" in row[1] for row in table.rows)
        assert [row[2] for row in table.rows][:2] == ["better", "worse"]
    long_texts = [row[2] for row in (*first.rows, *second.rows) if len(row[2]) > len("no difference")]
    assert len(long_texts) == len({*long_texts})
