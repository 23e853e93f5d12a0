"""Run every arm to its first report without a sweep, to detect early errors.

Built-in arms take one training step in this process, without data. Custom trainables run in child processes.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from orchestrator.conductor.report_judge import judge_report
from orchestrator.execution.trial.single_trial import SingleTrials, single_trials
from orchestrator.execution.trial.worker_outcomes import classify_error
from orchestrator.files.abandoned_folders import clear_folders
from orchestrator.plan.faults import Faults, Keys
from orchestrator.plan.training_code.settings import System, checked
from orchestrator.plan.types import Arm, Plan
from orchestrator.spec.checks import BASELINE
from orchestrator.spec.load import SpecFile
from orchestrator.trials import OutcomeKind, error_line
from trainables.assembly import build_model
from trainables.data.synthetic import synthetic_batch
from trainables.process_identity import process_label
from trainables.protocol import Job, Measurement
from trainables.training.accumulator import Accumulator
from trainables.training.step import Learner, one_step

PREFIX = "haltsweep-rehearsal-"
SEED = 0
EXAMPLES = 2
LENGTH = 8
"""Tokens of the longer example: few, so that even a large model takes a fraction of a second."""


def take_step(settings: Mapping[str, Any]) -> Measurement:
    """Run one optimizer step of a built-in arm on a few random tokens from its task's vocabulary.

    Args:
        settings: Settings of the arm.

    Raises:
        Diverged: The loss or its gradient is not finite.
    """
    system, began = checked(settings), perf_counter()
    assert isinstance(system, System), "settings of a planned arm must be valid"
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    learner = Learner(build_model(system.model, system.shape, SEED, device), system.train, seed=SEED)
    batch = synthetic_batch(system.shape, EXAMPLES, min(LENGTH, system.shape.length_max), SEED)
    accumulator = Accumulator(device=learner.device, scaled=learner.scaler.is_enabled())
    accumulator.add(0, one_step(learner, batch.to(device), 0))
    accumulator.flush()
    return Measurement(1, perf_counter() - began, accumulator.metrics())


@dataclass(frozen=True, slots=True)
class FirstReport:
    """First report of an arm, or the error before it."""

    arm: str
    error: str = ""
    """Error of the arm; empty if it reported."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """Metrics of custom training code; empty for built-in arms."""
    metrics_again: Mapping[str, Any] = field(default_factory=dict)
    """Metrics of a second run of the baseline with the same seed; empty for other arms."""


def rehearse(source: SpecFile, plan: Plan) -> None:
    """Run one training step of every arm of `plan`, and raise `PlanError` with one fault per failed arm.

    Args:
        source: Spec from which the plan was created.
        plan: Plan whose arms are run.
    """
    faults = Faults(source)
    for found in first_reports(plan):
        if found.error:
            faults.add(found.error, *_keys(found.arm))
    faults.raise_if_any()


def first_reports(plan: Plan, data_dir: Path | None = None) -> Iterator[FirstReport]:
    """Run every arm to its first report, each as a trial whose files are deleted.

    Arms of the built-in trainable take one training step on random tokens. Arms with the same model and
    training settings on tasks of one shape share one step, for example on several splits of the same data.
    All files are written to a temporary folder that is deleted afterwards.

    Args:
        plan: Plan whose arms are run, with the settings from the spec.
        data_dir: Data folder for custom training code; None for an empty folder.

    Yields:
        The first report of each arm.
    """
    if plan.trainable is None:
        for arms in _alike(plan):
            error = _one_step(plan, arms[0])
            for arm in arms:
                message = f"one training step of {arm.name} must end well, got {error}"
                yield FirstReport(arm.name, message if error else "")
        return
    clear_folders(Path(tempfile.gettempdir()), PREFIX)  # remove folders of killed processes
    with (
        tempfile.TemporaryDirectory(prefix=f"{PREFIX}{process_label()}-") as folder,
        single_trials(plan.trainable, plan.resources.cpus) as trials,
    ):
        for number, arm in enumerate(plan.arms):
            own = Path(folder) / str(number)
            own.mkdir()
            found = _first_report(plan, arm, trials, own, data_dir or own / "data")
            if not arm.reference and not found.error:
                again = Path(folder) / f"{number}-again"
                again.mkdir()
                second = _first_report(plan, arm, trials, again, data_dir or again / "data")
                found = replace(found, metrics_again=second.metrics)
            yield found


def _first_report(plan: Plan, arm: Arm, trials: SingleTrials, folder: Path, data_dir: Path) -> FirstReport:
    """Run `arm` until its first report and its checkpoint."""
    job = Job(arm.settings, SEED, "confirm", data_dir=data_dir)
    reply = next(trials.replies(job, folder, saves=True))
    why = "" if reply.checkpoint is not None else "no checkpoint: it cannot be saved"
    if reply.ended is not None and reply.ended.kind is not OutcomeKind.FINISHED:
        why = _outcome_text(reply.ended.kind, reply.ended.reason)
    elif reply.measurement is not None and (stop := judge_report(plan, reply.measurement)) is not None:
        why = _outcome_text(stop.kind, stop.reason)
    metrics = {} if reply.measurement is None else reply.measurement.metrics
    return FirstReport(
        arm.name, f"the first report of {arm.name} must come, got {why}" if why else "", metrics
    )


def _alike(plan: Plan) -> list[list[Arm]]:
    """Group arms whose rehearsals are identical, in order; a rehearsal uses no data."""
    found: dict[object, list[Arm]] = {}
    for arm in plan.arms:
        system = checked(arm.settings)
        seen = json.dumps([arm.settings["model"], arm.settings["train"]], sort_keys=True)
        found.setdefault((system.shape, seen) if isinstance(system, System) else arm.name, []).append(arm)
    return list(found.values())


def _one_step(plan: Plan, arm: Arm) -> str:
    """Return the error of one training step; empty if it succeeded.

    If trials request GPUs but this machine has none, the step uses fp32. On a CPU, fp16 is refused, and bf16
    is emulated at a tenth of the speed of fp32.
    """
    elsewhere = plan.resources.gpus > 0 and not torch.cuda.is_available()
    train = {**arm.settings["train"], **({"precision": "fp32"} if elsewhere else {})}
    try:
        measurement = take_step({**arm.settings, "train": train})
    except Exception as error:  # any exception of a model is an error to report
        outcome = classify_error(error)
        return _outcome_text(outcome.kind, outcome.reason)
    if (stop := judge_report(plan, measurement)) is not None:
        return _outcome_text(stop.kind, stop.reason)
    return ""


def _outcome_text(outcome: OutcomeKind, reason: str) -> str:
    return f"{outcome.value}: {error_line(reason)}"


def _keys(arm: str) -> Keys:
    label = arm.partition("[")[0]
    return (BASELINE,) if label == BASELINE else ("arms", label)
