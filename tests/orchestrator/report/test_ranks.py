"""Several assignments an arm are confirmed: a seed counts whole or not at all."""

from dataclasses import replace

import pytest

from orchestrator.report.writers.tables import screen_table
from orchestrator.trials import OutcomeKind, Record
from tests.orchestrator.report.studies import SPLITS, Study, make_study, remove_metrics

OUTCOME = f"{SPLITS[0]}/accuracy"


def of_two(ended: dict[tuple[str, int], OutcomeKind]) -> Study:
    """Two assignments of two arms on four seeds; `ended`: by arm and seed, second ones that did not finish.

    The second of an arm is worse by 0.2 than its first.
    """
    made = make_study(2, seeds=4, trials=0, thresholds=())
    assert made.plan.confirm is not None

    def second(each: Record) -> Record:
        assert each.last is not None
        outcome = ended.get((each.arm, each.seed), OutcomeKind.FINISHED)
        metrics = {**each.last.metrics, OUTCOME: each.last.metrics[OUTCOME] - 0.2}
        last = replace(each.last, metrics=metrics) if outcome is OutcomeKind.FINISHED else None
        return replace(each, trial_id=f"{each.trial_id}-1", rank=1, outcome=outcome, last=last)

    plan = replace(made.plan, confirm=replace(made.plan.confirm, best=2))
    return replace(made, plan=plan, records=(*made.records, *map(second, made.records)))


def test_arm_with_one_of_two_points_has_no_value() -> None:
    """Its one point would be compared with the best of the other, and its mean with that of both."""
    made = of_two({("arm-1", seed): OutcomeKind.CRASHED for seed in range(101, 105)})
    found = made.report()
    assert found.cell("arm-1", OUTCOME) is None
    assert found.effect("arm-1", OUTCOME) is None
    (said,) = found.verdicts
    assert (said.text, said.seeds) == ("undecided: 4 seeds failed", "0 of 4 seeds finished")
    assert screen_table(found).rows[1][1:3] == ("0 of 4 finished", "0 of 4 finished")


@pytest.mark.parametrize("how", ["failed", "lacks it"])
def test_means_and_differences_are_over_the_same_trials(how: str) -> None:
    if how == "failed":
        made = of_two({("arm-1", 102): OutcomeKind.DIVERGED})
    else:
        made = remove_metrics(
            of_two({}), [OUTCOME], lambda each: (each.arm, each.seed, each.rank) == ("arm-1", 102, 1)
        )
    found = made.report()
    own, theirs = found.cell("arm-1", OUTCOME), found.cell("arm-0", OUTCOME)
    difference = found.effect("arm-1", OUTCOME)
    assert own is not None
    assert theirs is not None
    assert difference is not None
    assert (own.estimate.n, own.failed, theirs.estimate.n, difference.estimate.n) == (3, 1, 4, 3)
    seeds = dict(own.by_seed)
    assert sorted(seeds) == [101, 103, 104]
    paired = [value - dict(theirs.by_seed)[seed] for seed, value in seeds.items()]
    assert difference.estimate.mean == pytest.approx(sum(paired) / 3)
    assert len(difference.pairs) == 6
    assert difference.p is None


def test_seed_with_an_open_trial_has_no_value() -> None:
    made = of_two({})
    partly = replace(made, records=made.records[:-1]).report()
    cell = partly.cell("arm-1", OUTCOME)
    assert cell is not None
    assert [seed for seed, _ in cell.by_seed] == [101, 102, 103]
