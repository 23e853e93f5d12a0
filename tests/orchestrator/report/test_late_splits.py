"""Values of later splits belong to the trials whose checkpoints were re-evaluated."""

from dataclasses import replace

from orchestrator.report.results.seed_results import merge_late_splits, pending_splits
from orchestrator.report.results.summary import summarise
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.studies import SPLITS, make_study, with_metrics

LATE_SPLIT = SPLITS[1]


def study_with_late_split(outcome=OutcomeKind.FINISHED):
    """Return a study, and the same study where a re-evaluation measured one split."""
    complete_study = make_study(2, 2, 0, thresholds=(0.5,))
    late_trials, records = [], []
    for trial, record in zip(complete_study.plan.trials, complete_study.records, strict=True):
        metrics = record.last.metrics
        first_metrics = {
            name: value for name, value in metrics.items() if not name.startswith(f"{LATE_SPLIT}/")
        }
        late_trials.append(
            replace(trial, trial_id=f"{trial.trial_id}-late", phase="posthoc", late_splits=(LATE_SPLIT,))
        )
        records.append(replace(record, last=replace(record.last, metrics=first_metrics)))
        late_record = replace(record, trial_id=late_trials[-1].trial_id, phase="posthoc", outcome=outcome)
        records.append(with_metrics(late_record, {"near-iid/accuracy": 0.0, "valid/accuracy": 0.0}))
    return (
        complete_study,
        replace(complete_study.plan, trials=(*complete_study.plan.trials, *late_trials)),
        records,
    )


def test_late_splits_equal_splits_measured_at_once():
    complete_study, plan, records = study_with_late_split()
    merged_records = merge_late_splits(plan, records)
    assert [trial.trial_id for trial in merged_records] == [
        record.trial_id for record in complete_study.records
    ]
    assert [dict(record.last.metrics) for record in merged_records] == [
        dict(record.last.metrics) for record in complete_study.records
    ]
    late_report, complete_report = summarise(plan, records), complete_study.report()
    assert late_report.cells == complete_report.cells
    assert late_report.posthoc == complete_report.posthoc
    assert late_report.verdicts == complete_report.verdicts
    assert merge_late_splits(complete_study.plan, complete_study.records) == list(complete_study.records)


def test_pending_splits_are_not_reported_as_unmeasured():
    _, plan, records = study_with_late_split(outcome=None)
    assert pending_splits(plan, records) == {LATE_SPLIT}
    assert summarise(plan, records).unread == ()
    _, plan, records = study_with_late_split(outcome=OutcomeKind.CRASHED)
    assert pending_splits(plan, records) == frozenset()
    assert summarise(plan, records).unread == (LATE_SPLIT,)
    assert not [cell for cell in summarise(plan, records).cells if cell.metric.startswith(LATE_SPLIT)]
