"""Run every arm to its first report without a sweep, to detect early errors.

Built-in arms take one training step in this process, without data. Custom trainables run in child processes.
"""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from orchestrator.conductor.messages import Reply
from orchestrator.conductor.report_validator import judge_report, judge_values
from orchestrator.execution.trial.single_trial import SingleTrials, single_trials
from orchestrator.execution.trial.worker_outcomes import classify_error
from orchestrator.files.abandoned_folders import clear_folders
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.faults import Faults, Keys
from orchestrator.plan.training_code.settings import ParsedSettings, parse_settings
from orchestrator.plan.types import Arm, Plan
from orchestrator.spec.checks import BASELINE
from orchestrator.spec.load import SpecFile
from orchestrator.trials import OutcomeKind, error_line
from search_spaces.paths import overlap
from trainables.assembly import build_model
from trainables.data.synthetic import synthetic_batch
from trainables.metrics import split_and_quantity
from trainables.process_identity import process_label
from trainables.protocol import Job, Measurement, Phase
from trainables.training.accumulator import Accumulator
from trainables.training.step import Learner, run_step

FOLDER_PREFIX = "haltsweep-rehearsal-"
SEED = 0
NUM_EXAMPLES = 2
EXAMPLE_LENGTH = 8
"""Tokens of the longer example: few, so that even a large model takes a fraction of a second."""
CONFIRM_LIMIT_S = 30.0
"""Seconds of a rehearsed confirm trial, which may otherwise train for days."""


def take_step(settings: Mapping[str, Any], *, narrow: bool = False) -> Measurement:
    """Run one optimizer step of a built-in arm on a few random tokens from its task's vocabulary.

    Args:
        settings: Settings of the arm.
        narrow: Whether to divide all widths of the model by one number, for a machine that will not run the
            trial.

    Raises:
        Diverged: The loss or its gradient is not finite.
    """
    system, started_at = parse_settings(settings), perf_counter()
    assert isinstance(system, ParsedSettings), "settings of a planned arm must be valid"
    system = Probe().narrow(system) if narrow else system
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    learner = Learner(build_model(system.model, system.shape, SEED, device), system.train, seed=SEED)
    batch = synthetic_batch(system.shape, NUM_EXAMPLES, min(EXAMPLE_LENGTH, system.shape.length_max), SEED)
    accumulator = Accumulator(device=learner.device, scaled=learner.scaler.is_enabled())
    accumulator.add(0, run_step(learner, batch.to(device), 0))
    accumulator.flush()
    return Measurement(1, perf_counter() - started_at, accumulator.metrics())


@dataclass(frozen=True, slots=True)
class FirstReport:
    """First report of an arm, or the error before it."""

    arm: str
    error: str = ""
    """Error of the arm, without its name; empty if it reported."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """Metrics of custom training code; empty for built-in arms."""
    unsteady_metrics: tuple[str, ...] = ()
    """Metrics whose values differ in a second run with the same seed; empty for arms with a reference, which
    run once.
    """
    equal_metrics: tuple[str, ...] = ()
    """Metrics that equal those of the arm's reference in all compared reports; empty if a metric differs."""
    num_equal_reports: int = 0
    """Number of compared reports if none of them differs: 1 if both arms report once, else 2."""
    unread_fields: tuple[str, ...] = ()
    """Fields that the arm changes or searches, and that custom code did not read before the report."""


@dataclass(frozen=True, slots=True)
class RehearsedConfirmTrial:
    """Result of the first seconds of a confirm trial of custom training code."""

    arm: str
    error: str
    """How the trial failed; empty if it did not."""
    missing: tuple[str, ...]
    """Primary outcomes that it did not report."""
    has_ended: bool


def rehearse(source: SpecFile, plan: Plan) -> None:
    """Run one training step of every arm of `plan`, and raise `PlanError` with one fault per failed arm.

    Args:
        source: Spec from which the plan was created.
        plan: Plan whose arms are run.
    """
    faults = Faults(source)
    for report in first_reports(plan):
        if report.error:
            keys = _spec_keys(report.arm)
            faults.add(report.error if report.arm in keys else f"{report.arm}: {report.error}", *keys)
    faults.raise_if_any()


def first_reports(plan: Plan, data_dir: Path | None = None) -> Iterator[FirstReport]:
    """Run every arm to its first report, each as a trial whose files are deleted.

    Arms of the built-in trainable take one training step on random tokens. Arms with the same model and
    training settings on tasks of one shape share one step, for example on several splits of the same data.
    Custom trainables run as the first trials of the sweep, which are search trials if there is a search.
    Reference arms run to their second report, and so do arms with an equal first report, since a setting
    such as momentum has no effect before the second report. Arms run again with settings that
    record which fields are read, unless a single change has shown an effect.
    All files are written to a temporary folder that is deleted afterwards.

    Args:
        plan: Plan whose arms are run, with the settings from the spec.
        data_dir: Data folder for custom training code; None for an empty folder.

    Yields:
        The first report of each arm.
    """
    if plan.trainable is None:
        for arms in _group_equal_arms(plan):
            error = _training_step_error(plan, arms[0])
            for arm in arms:
                yield FirstReport(arm.name, f"one training step must succeed, got {error}" if error else "")
        return
    clear_folders(Path(tempfile.gettempdir()), FOLDER_PREFIX)  # remove folders of killed processes
    with (
        tempfile.TemporaryDirectory(prefix=f"{FOLDER_PREFIX}{process_label()}-") as folder,
        single_trials(plan.trainable, plan.resources.cpus) as trials,
    ):
        yield from _CustomArms(plan, trials, Path(folder), data_dir).first_reports()


def rehearse_confirm_trial(plan: Plan, data_dir: Path | None = None) -> RehearsedConfirmTrial | None:
    """Run a confirm trial of the first arm until it has reported all primary outcomes.

    Most trials measure test data only at their end, after the first report. The trial
    is stopped after `CONFIRM_LIMIT_S`. Its files are deleted.

    Args:
        plan: Plan with the settings from the spec.
        data_dir: Data folder for the training code; None for an empty folder.

    Returns:
        None if the trainable is built in, or if the plan confirms nothing.
    """
    if plan.trainable is None or plan.confirm is None:
        return None
    reported_names: set[str] = set()
    arm, ended, missing = plan.arms[0], None, plan.outcomes
    with (
        tempfile.TemporaryDirectory(prefix=f"{FOLDER_PREFIX}{process_label()}-") as folder,
        single_trials(plan.trainable, plan.resources.cpus) as trials,
    ):
        scratch = Path(folder)
        job = Job(arm.settings, SEED, "confirm", plan.confirm.splits, data_dir or scratch / "data")
        for reply in trials.replies(job, scratch, limit_s=CONFIRM_LIMIT_S):
            if reply.measurement is not None:
                reported_names.update(reply.measurement.metrics)
                stop = judge_values(plan, reply.measurement)
                if stop is not None:
                    error = _outcome_text(stop.kind, stop.reason)
                    return RehearsedConfirmTrial(arm.name, error, (), has_ended=True)
            ended = reply.ended
            missing = tuple(outcome for outcome in plan.outcomes if not is_reported(outcome, reported_names))
            if plan.outcomes and not missing:
                break
    error = _failure_text(Reply(ended=ended))
    return RehearsedConfirmTrial(arm.name, error, missing, has_ended=ended is not None)


def is_reported(outcome: str, reported_names: Iterable[str]) -> bool:
    """Return whether the quantity of an outcome was reported on its split, or without a split."""
    split, quantity = split_and_quantity(outcome)
    splits = [
        reported_split for reported_split, name in map(split_and_quantity, reported_names) if name == quantity
    ]
    return any(not split or not reported_split or reported_split == split for reported_split in splits)


class _CustomArms:
    """Runner of the arms of a custom trainable that compares their reports."""

    def __init__(self, plan: Plan, trials: SingleTrials, folder: Path, data_dir: Path | None) -> None:
        self._plan, self._trials, self._folder, self._data_dir = plan, trials, folder, data_dir
        self._references: dict[str, list[Mapping[str, Any]]] = {}
        """First and second report, if any, of each reference arm."""
        self._unsteady: set[str] = set()

    def first_reports(self) -> Iterator[FirstReport]:
        """Yield the first report of each arm."""
        references = {arm.reference for arm in self._plan.arms}
        for number, arm in enumerate(self._plan.arms):
            first, replies = self._first_report(arm, str(number))
            if not first.error and arm.name in references:
                second, error = _second_report(replies)
                self._references[arm.name] = [first.metrics, *second]
                first = replace(first, error=error)
            if not first.error and not arm.reference:
                second_report, _ = self._first_report(arm, f"{number}-second")
                unsteady = (
                    set() if second_report.error else _differing_names(first.metrics, second_report.metrics)
                )
                self._unsteady |= unsteady
                error = f"in a second run, {second_report.error}" if second_report.error else ""
                first = replace(first, error=error, unsteady_metrics=tuple(sorted(unsteady)))
            first = self._compare_with_reference(arm, first, replies)
            yield replace(first, unread_fields=self._unread_fields(arm, first, f"{number}-reads"))

    def _first_report(self, arm: Arm, name: str) -> tuple[FirstReport, Iterator[Reply]]:
        """Run `arm` until its first report and checkpoint; return the report and the later replies."""
        replies = self._run(arm, name)
        reply = next(replies)
        reason = _failure_text(reply)
        if not reason and reply.measurement is not None:
            stop = judge_report(self._plan, reply.measurement)
            reason = _outcome_text(stop.kind, stop.reason) if stop is not None else ""
        if not reason and reply.checkpoint is None:
            reason = "no checkpoint: it cannot be saved"
        metrics = _reported_values(reply)
        error = f"the trial must report once, got {reason}" if reason else ""
        return FirstReport(arm.name, error, metrics), replies

    def _run(self, arm: Arm, name: str, *, records_reads: bool = False) -> Iterator[Reply]:
        plan, folder = self._plan, self._folder / name
        folder.mkdir()
        phase: Phase = "confirm" if plan.search is None else "search"
        splits = plan.test_splits if phase == "confirm" else ()
        job = Job(arm.settings, SEED, phase, splits, self._data_dir or folder / "data")
        return self._trials.replies(job, folder, saves_checkpoints=True, records_reads=records_reads)

    def _unread_fields(self, arm: Arm, first: FirstReport, name: str) -> tuple[str, ...]:
        """Return the changed and searched fields that a run named `name` does not read before its report.

        This run gets instrumented settings, which code may treat differently from a dict. So nothing is known
        if its report differs from `first`. An arm whose single change has an effect does not run again.
        """
        fields = self._changed_or_searched_fields(arm)
        reference = self._references.get(arm.reference)
        has_effect = reference is not None and not self._are_equal(first.metrics, reference[0])
        if first.error or not fields or (len(fields) == 1 and has_effect):
            return ()
        reply = next(self._run(arm, name, records_reads=True))
        if not self._are_equal(first.metrics, _reported_values(reply)):
            return ()
        return tuple(field for field in fields if any(overlap(field, path) for path in reply.unread_fields))

    def _changed_or_searched_fields(self, arm: Arm) -> list[str]:
        """Return the fields that the arm changes, and those that it searches but its reference does not."""
        reference = next((other for other in self._plan.arms if other.name == arm.reference), None)
        reference_paths = () if reference is None else reference.space.paths
        searched = [path for path in arm.space.paths if path not in reference_paths]
        return list(dict.fromkeys([*(change.path for change in arm.changes), *searched]))

    def _compare_with_reference(self, arm: Arm, first: FirstReport, replies: Iterator[Reply]) -> FirstReport:
        """Return the first report of `arm` with the metrics that equal those of its reference."""
        if first.error or arm.reference not in self._references or not arm.changes or arm.control:
            return first
        reference = self._references[arm.reference]
        equal_names = self._equal_names(first.metrics, reference[0])
        if not equal_names:
            return first
        second, error = ([], "") if arm.name in self._references else _second_report(replies)
        references = self._references.get(arm.name, [first.metrics, *second])
        if error:
            return replace(first, error=error)
        if len(references) != len(reference):
            return first
        if len(references) > 1 and not self._equal_names(references[1], reference[1]):
            return first
        return replace(first, equal_metrics=tuple(sorted(equal_names)), num_equal_reports=len(references))

    def _equal_names(self, metrics: Mapping[str, Any], reference_metrics: Mapping[str, Any]) -> set[str]:
        """Return the names of the steady metrics in both reports; empty if one differs or is in one only."""
        names = (metrics.keys() | reference_metrics.keys()) - self._unsteady
        return names if self._are_equal(metrics, reference_metrics) else set()

    def _are_equal(self, metrics: Mapping[str, Any], reference_metrics: Mapping[str, Any]) -> bool:
        """Return whether all steady metrics are equal."""
        differing = _differing_names(metrics, reference_metrics) | _differing_names(
            reference_metrics, metrics
        )
        return differing <= self._unsteady


def _second_report(replies: Iterator[Reply]) -> tuple[list[Mapping[str, Any]], str]:
    """Return the metrics of a trial's next report in a list; if it has none, an empty list and the error."""
    for reply in replies:
        if reason := _failure_text(reply):
            return [], f"the trial must continue after its first report, got {reason}"
        if reply.measurement is not None:
            return [reply.measurement.metrics], ""
    return [], ""


def _reported_values(reply: Reply) -> dict[str, Any]:
    """Return the metrics and texts of a reply; empty if it has no report."""
    measured = reply.measurement
    return {} if measured is None else {**measured.metrics, **measured.attributes}


def _failure_text(reply: Reply) -> str:
    """Return how a trial failed; empty if it has finished or continues."""
    if reply.ended is None or reply.ended.kind is OutcomeKind.FINISHED:
        return ""
    return _outcome_text(reply.ended.kind, reply.ended.reason)


def _differing_names(metrics: Mapping[str, Any], reference_metrics: Mapping[str, Any]) -> set[str]:
    """Return the names of values in `metrics` that are missing or different in `reference_metrics`."""
    return {name for name, value in metrics.items() if repr(reference_metrics.get(name)) != repr(value)}


def _group_equal_arms(plan: Plan) -> list[list[Arm]]:
    """Group arms whose rehearsals are identical, in order; a rehearsal uses no data."""
    arms_by_settings: dict[object, list[Arm]] = {}
    for arm in plan.arms:
        system = parse_settings(arm.settings)
        settings = json.dumps([arm.settings["model"], arm.settings["train"]], sort_keys=True)
        key = (system.shape, settings) if isinstance(system, ParsedSettings) else arm.name
        arms_by_settings.setdefault(key, []).append(arm)
    return list(arms_by_settings.values())


def _training_step_error(plan: Plan, arm: Arm) -> str:
    """Return the error of one training step; empty if it succeeded.

    If trials request GPUs but this machine has none, the step uses fp32 and a narrow model. On a CPU, fp16 is
    refused, bf16 is emulated at a tenth of the speed of fp32, and large models take half a minute.
    """
    lacks_gpu = plan.resources.gpus > 0 and not torch.cuda.is_available()
    train = {**arm.settings["train"], **({"precision": "fp32"} if lacks_gpu else {})}
    try:
        measurement = take_step({**arm.settings, "train": train}, narrow=lacks_gpu)
    except Exception as error:  # any exception of a model is an error to report
        outcome = classify_error(error)
        return _outcome_text(outcome.kind, outcome.reason)
    if (stop := judge_report(plan, measurement)) is not None:
        return _outcome_text(stop.kind, stop.reason)
    return ""


def _outcome_text(outcome: OutcomeKind, reason: str) -> str:
    return f"{outcome.value}: {error_line(reason)}"


def _spec_keys(arm: str) -> Keys:
    label = arm.partition("[")[0]
    return (BASELINE,) if label == BASELINE else ("arms", label)
