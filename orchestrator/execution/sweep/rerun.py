"""Rerun confirm trials of a sweep, each separately, and check whether their metrics are the same."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.execution.code_digests import sweep_code_parts
from orchestrator.execution.sweep.launch_folder import DEFAULT_WORKLOAD, Setup
from orchestrator.execution.trial.single_trial import SingleTrials, single_trials
from orchestrator.execution.trial.worker import load_workload
from orchestrator.files.findings import Finding
from orchestrator.identity import digest
from orchestrator.plan.answer import metric_splits
from orchestrator.plan.types import Plan
from orchestrator.spec.metric_splits import MetricSplits
from orchestrator.trials import Outcome, OutcomeKind, Record
from trainables.protocol import Job, Measurement

_REMEDY = "other machines and versions change the last digits: check how large the differences are"


def sample_trials(records: Sequence[Record], count: int) -> list[Record]:
    """Return `count` finished confirm trials, or all, in a pseudo-random order that is always the same."""
    confirm_and_finished = ("confirm", OutcomeKind.FINISHED)
    finished_records = [
        record for record in records if (record.phase, record.outcome) == confirm_and_finished
    ]
    return sorted(finished_records, key=lambda record: digest("rerun", record.trial_id))[:count]


def rerun_trials(plan: Plan, records: Sequence[Record], count: int, data_dir: Path) -> Iterator[Finding]:
    """Train `count` confirm trials again and compare their last metrics with those in the ledger.

    Metrics of all evaluated splits are compared, including `valid`. Other metrics, such as speed, are not
    compared. Python imports the training code of the plan as it is now.

    Args:
        plan: The plan of the sweep.
        records: Trials in the ledger.
        count: Maximum number of trials to rerun.
        data_dir: Folder for datasets.

    Yields:
        One finding per rerun trial.

    Raises:
        InputError: The training code cannot be imported.
    """
    names = metric_splits(plan.search, plan.confirm, plan.answer)
    workload = plan.trainable or DEFAULT_WORKLOAD
    load_workload(workload)  # also makes the source files of the trainable available
    parts = sweep_code_parts(plan, Setup(data_dir, workload=workload))
    with single_trials(workload, plan.resources.cpus) as trials:
        for record in sample_trials(records, count):
            with TemporaryDirectory(prefix="haltsweep-rerun-") as folder:
                job = Job(record.settings, record.seed, "confirm", plan.test_splits, data_dir)
                outcome, last = _run_trial(trials, job, Path(folder))
            finding = _compare_outcome(record, outcome, last, names)
            yield replace(finding, detail=finding.detail + _changed_code_clause(record, parts))


def _changed_code_clause(record: Record, current_parts: Mapping[str, str]) -> str:
    """Return a clause with the parts of the code that changed since the trial; empty if none did."""
    recorded_parts = record.provenance.get("code_parts") or {}
    changes = [
        f"{name} (digest {recorded_parts[name]} then, {now} here)"
        for name, now in current_parts.items()
        if recorded_parts.get(name, now) != now
    ]
    return f"; with other code than the original trial: {', '.join(changes)}" if changes else ""


def _run_trial(trials: SingleTrials, job: Job, folder: Path) -> tuple[Outcome, Measurement | None]:
    """Return the outcome and the last measurement of a trial."""
    last, outcome = None, None
    for reply in trials.replies(job, folder):
        last, outcome = reply.measurement or last, reply.ended
    assert outcome is not None, "the last reply is the end"
    return outcome, last


def _compare_outcome(
    record: Record, outcome: Outcome, last: Measurement | None, names: MetricSplits
) -> Finding:
    name = record.place
    if outcome.kind is not OutcomeKind.FINISHED or last is None:
        error_line = outcome.reason.partition("\n")[0]
        return Finding("rerun", "unknown", f"{name} did not finish: {outcome.kind}: {error_line}", _REMEDY)
    expected_metrics = {
        metric: value
        for metric, value in (record.last.metrics if record.last else {}).items()
        if names.split(metric) in (*names.test, *names.selection)
    }
    differences = [
        f"{metric} {value:.9g} -> {last.metrics.get(metric, math.nan):.9g}"
        for metric, value in sorted(expected_metrics.items())
        if repr(last.metrics.get(metric)) != repr(value)  # NaN does not equal itself, but its string does
    ]
    count = len(expected_metrics)
    if not differences:
        splits_text = ", ".join(dict.fromkeys(map(names.split, expected_metrics)))
        message = f"{name}: all {count} metrics of {splits_text} the same, to the last digit"
        return Finding("rerun", "sound", message)
    message = f"{name}: {len(differences)} of {count} metrics differ: {', '.join(differences)}"
    return Finding("rerun", "unknown", message, _REMEDY)
