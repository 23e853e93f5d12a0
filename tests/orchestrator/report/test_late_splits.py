"""Splits that were added: their values belong to the trials whose checkpoints were read again for them."""

from dataclasses import replace

from orchestrator.report.results.seed_results import merge_late_splits, pending_splits
from orchestrator.report.results.summary import summarise
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.studies import SPLITS, study

LATE = SPLITS[1]


def parted(outcome=OutcomeKind.FINISHED):
    """A study, and the same of which one split was read later, of every confirm trial and reading."""
    made = study(2, 2, 0, thresholds=(0.5,))
    late, records = [], []
    for planned, record in zip(made.plan.trials, made.records, strict=True):
        metrics = record.last.metrics
        own = {name: value for name, value in metrics.items() if not name.startswith(f"{LATE}/")}
        late.append(
            replace(planned, trial_id=f"{planned.trial_id}-late", phase="posthoc", late_splits=(LATE,))
        )
        records.append(replace(record, last=replace(record.last, metrics=own)))
        again = replace(record.last, metrics={**metrics, "near-iid/accuracy": 0.0, "valid/accuracy": 0.0})
        records.append(
            replace(record, trial_id=late[-1].trial_id, phase="posthoc", last=again, outcome=outcome)
        )
    return made, replace(made.plan, trials=(*made.plan.trials, *late)), records


def test_late_splits_equal_splits_measured_at_once():
    made, plan, records = parted()
    whole = merge_late_splits(plan, records)
    assert [trial.trial_id for trial in whole] == [record.trial_id for record in made.records]
    assert [dict(record.last.metrics) for record in whole] == [
        dict(record.last.metrics) for record in made.records
    ]
    found, wanted = summarise(plan, records), made.report()
    assert found.cells == wanted.cells
    assert found.posthoc == wanted.posthoc
    assert found.verdicts == wanted.verdicts
    assert merge_late_splits(made.plan, made.records) == list(made.records)


def test_pending_splits_are_not_reported_as_unmeasured():
    _, plan, records = parted(outcome=None)
    assert pending_splits(plan, records) == {LATE}
    assert summarise(plan, records).unread == ()
    _, plan, records = parted(outcome=OutcomeKind.CRASHED)
    assert pending_splits(plan, records) == frozenset()
    assert summarise(plan, records).unread == (LATE,)
    assert not [cell for cell in summarise(plan, records).cells if cell.metric.startswith(LATE)]
