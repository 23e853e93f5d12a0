"""An arm with several confirmed params: a seed counts only if all its trials finished."""

from dataclasses import replace

import pytest

from orchestrator.report.writers.tables import screen_table
from orchestrator.trials import OutcomeKind, Record
from tests.orchestrator.report.studies import SPLITS, Study, make_study, remove_metrics

OUTCOME = f"{SPLITS[0]}/accuracy"


def study_with_two_params(outcomes: dict[tuple[str, int], OutcomeKind]) -> Study:
    """Return two params of two arms on four seeds; the second params score 0.2 less.

    `outcomes` gives the failures of second params by arm and seed.
    """
    base_study = make_study(2, seeds=4, trials=0, thresholds=())
    assert base_study.plan.confirm is not None

    def make_second_record(record: Record) -> Record:
        outcome = outcomes.get((record.arm, record.seed), OutcomeKind.FINISHED)
        metrics = {**record.last.metrics, OUTCOME: record.last.metrics[OUTCOME] - 0.2}
        last = replace(record.last, metrics=metrics) if outcome is OutcomeKind.FINISHED else None
        return replace(record, trial_id=f"{record.trial_id}-1", rank=1, outcome=outcome, last=last)

    plan = replace(base_study.plan, confirm=replace(base_study.plan.confirm, best=2))
    return replace(
        base_study, plan=plan, records=(*base_study.records, *map(make_second_record, base_study.records))
    )


def test_arm_with_one_of_two_points_has_no_value() -> None:
    """A mean over one of two params is not comparable with a mean over both."""
    tested_study = study_with_two_params({("arm-1", seed): OutcomeKind.CRASHED for seed in range(101, 105)})
    report = tested_study.report()
    assert report.cell("arm-1", OUTCOME) is None
    assert report.effect("arm-1", OUTCOME) is None
    (verdict,) = report.verdicts
    assert (verdict.kind, "4 seeds" in verdict.text) == ("undecided", True)
    assert all(text.startswith("0 of 4 ") for text in (verdict.seeds, *screen_table(report).rows[1][1:3]))


@pytest.mark.parametrize("case", ["failed", "lacks it"])
def test_means_and_differences_are_over_the_same_trials(case: str) -> None:
    if case == "failed":
        tested_study = study_with_two_params({("arm-1", 102): OutcomeKind.DIVERGED})
    else:
        tested_study = remove_metrics(
            study_with_two_params({}),
            [OUTCOME],
            lambda record: (record.arm, record.seed, record.rank) == ("arm-1", 102, 1),
        )
    report = tested_study.report()
    arm_cell, baseline_cell = report.cell("arm-1", OUTCOME), report.cell("arm-0", OUTCOME)
    difference = report.effect("arm-1", OUTCOME)
    assert (arm_cell.estimate.n, arm_cell.failed, baseline_cell.estimate.n, difference.estimate.n) == (
        3,
        1,
        4,
        3,
    )
    seeds = dict(arm_cell.by_seed)
    assert sorted(seeds) == [101, 103, 104]
    differences = [value - dict(baseline_cell.by_seed)[seed] for seed, value in seeds.items()]
    assert difference.estimate.mean == pytest.approx(sum(differences) / 3)
    assert len(difference.pairs) == 6
    assert difference.p is None
