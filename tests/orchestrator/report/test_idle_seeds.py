"""Seeds that change no result give no verdict."""

from collections.abc import Callable
from dataclasses import replace

from orchestrator.report.caveats.warning_texts import CONSTANT_OUTCOME_WARNING, warning_texts
from orchestrator.trials import Record
from tests.orchestrator.report.studies import Study, make_study


def make_constant_study(accuracy_of: Callable[[str], float], loss_of: Callable[[int], float]) -> Study:
    """Return a study with one accuracy per arm and one loss per seed."""
    base_study = make_study(2, 4, 0, thresholds=())

    def set_metrics(record: Record) -> Record:
        metrics = {
            "near-iid/accuracy": accuracy_of(record.arm),
            "near-iid/loss": loss_of(record.seed),
            "train/loss": record.seed,
        }
        return replace(record, last=replace(record.last, metrics=metrics))

    return replace(base_study, records=tuple(map(set_metrics, base_study.records)))


def test_identical_seeds_give_no_verdict():
    report = make_constant_study(lambda arm: 0.9 if arm == "arm-1" else 0.5, lambda _: 1.0).report()
    [verdict] = report.verdicts
    assert (verdict.kind, verdict.p) == ("undecided", None)
    assert CONSTANT_OUTCOME_WARNING.format(arms="arm-1", metric="near-iid/accuracy") in warning_texts(report)
    assert all(
        effect.p is None and effect.estimate.low is None for effect in report.effects if effect.primary
    )


def test_constant_outcome_of_differing_seeds_may_give_a_verdict():
    report = make_constant_study(lambda arm: 1.0 if arm == "arm-1" else 0.0, float).report()
    [verdict] = report.verdicts
    assert verdict.kind == "better"
    assert CONSTANT_OUTCOME_WARNING.format(arms="arm-1", metric="near-iid/accuracy") in warning_texts(report)
