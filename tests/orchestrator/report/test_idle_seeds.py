"""Seeds that change nothing are one run under many numbers, and seeds that failed are said to be whose."""

from collections.abc import Callable
from dataclasses import replace

from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.trials import OutcomeKind, Record
from tests.orchestrator.report.studies import Study, study


def constant(values: Callable[[str], float], more: Callable[[int], float]) -> Study:
    """A study whose seeds measure one accuracy an arm, and a loss by the seed."""
    made = study(2, 4, 0, thresholds=())

    def alike(each: Record) -> Record:
        assert each.last is not None
        metrics = {
            "near-iid/accuracy": values(each.arm),
            "near-iid/loss": more(each.seed),
            "train/loss": each.seed,
        }
        return replace(each, last=replace(each.last, metrics=metrics))

    return replace(made, records=tuple(map(alike, made.records)))


def test_identical_seeds_decide_nothing():
    report = constant(lambda arm: 0.9 if arm == "arm-1" else 0.5, lambda _: 1.0).report()
    [verdict] = report.verdicts
    assert verdict.text == "undecided: all values are the same, which tells nothing of chance"
    assert verdict.p is None
    assert not [warning_text for warning_text in warning_texts(report) if "all seeds" in warning_text], (
        "nothing is claimed"
    )
    assert all(
        effect.p is None and effect.estimate.low is None for effect in report.effects if effect.primary
    )


def test_constant_outcome_of_differing_seeds_may_decide():
    report = constant(lambda arm: 1.0 if arm == "arm-1" else 0.0, float).report()
    [verdict] = report.verdicts
    assert verdict.kind == "better"
    [shown] = [warning_text for warning_text in warning_texts(report) if "all seeds" in warning_text]
    assert shown.startswith("arm-1: all seeds measured the same near-iid/accuracy")


def test_seeds_that_failed_in_the_reference_are_said_to_be_its_own():
    fate = {0: OutcomeKind.DIVERGED}
    made = study(2, 4, 0, thresholds=(), fate=lambda arm, _: fate.get(arm, OutcomeKind.FINISHED))
    [verdict] = made.report().verdicts
    assert verdict.line.startswith("arm-1: undecided: 4 seeds failed in arm-0 (")
    assert "4 of 4 seeds finished" in verdict.line
