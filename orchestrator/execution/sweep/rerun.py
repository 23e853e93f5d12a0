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

_REMEDY = "other machines and versions differ in the last digits: judge by how much"


def sample_trials(records: Sequence[Record], count: int) -> list[Record]:
    """Return `count` finished confirm trials, or all, in a pseudo-random order that is always the same."""
    finished = [
        record for record in records if (record.phase, record.outcome) == ("confirm", OutcomeKind.FINISHED)
    ]
    return sorted(finished, key=lambda record: digest("rerun", record.trial_id))[:count]


def rerun(plan: Plan, records: Sequence[Record], count: int, data_dir: Path) -> Iterator[Finding]:
    """Train `count` confirm trials from their first step and compare their last measurements.

    All evaluated splits are compared, including `valid`; metrics of other kinds, such as speed, are not. The
    training code of the plan is imported and run from wherever Python finds it.

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
    splits = plan.confirm.splits if plan.confirm is not None else ()
    names = metric_splits(plan.search, plan.confirm, plan.answer)
    workload = plan.trainable or DEFAULT_WORKLOAD
    load_workload(workload)  # also makes the source files of the trainable available
    parts = sweep_code_parts(plan, Setup(data_dir, workload=workload))
    with single_trials(workload, plan.resources.cpus) as trials:
        for record in sample_trials(records, count):
            with TemporaryDirectory(prefix="haltsweep-rerun-") as folder:
                job = Job(record.settings, record.seed, "confirm", splits, data_dir)
                outcome, last = _run(trials, job, Path(folder))
            found = _compared(record, outcome, last, names)
            yield replace(found, detail=found.detail + _other_code(record, parts))


def _other_code(record: Record, here: Mapping[str, str]) -> str:
    """Return a clause with the parts of the code that changed since the trial; empty if none did."""
    then = record.provenance.get("code_parts") or {}
    other = [name for name in here if then.get(name, here[name]) != here[name]]
    message = ", ".join(f"{name} (digest {then[name]} then, {here[name]} here)" for name in other)
    return f"; by other code than then: {message}" if message else ""


def _run(trials: SingleTrials, job: Job, folder: Path) -> tuple[Outcome, Measurement | None]:
    """Return the outcome and the last measurement of a trial."""
    last, ended = None, None
    for reply in trials.replies(job, folder):
        last, ended = reply.measurement or last, reply.ended
    assert ended is not None, "the last reply is the end"
    return ended, last


def _compared(record: Record, outcome: Outcome, last: Measurement | None, names: MetricSplits) -> Finding:
    name = record.place
    if outcome.kind is not OutcomeKind.FINISHED or last is None:
        first = outcome.reason.partition("\n")[0]
        return Finding("rerun", "unknown", f"{name} did not finish: {outcome.kind}: {first}", _REMEDY)
    wanted = {
        metric: value
        for metric, value in (record.last.metrics if record.last else {}).items()
        if names.split(metric) in (*names.test, *names.selection)
    }
    # NaN does not equal itself, but its string does.
    other = [
        metric for metric, value in sorted(wanted.items()) if repr(last.metrics.get(metric)) != repr(value)
    ]
    if not other:
        read = ", ".join(dict.fromkeys(map(names.split, wanted)))
        message = f"{name}: all {len(wanted)} metrics of {read} the same, to the last digit"
        return Finding("rerun", "sound", message)
    now = {metric: last.metrics.get(metric, math.nan) for metric in other}
    message = ", ".join(f"{metric} {wanted[metric]:.9g} -> {value:.9g}" for metric, value in now.items())
    message = f"{name}: {len(other)} of {len(wanted)} metrics differ: {message}"
    return Finding("rerun", "unknown", message, _REMEDY)
