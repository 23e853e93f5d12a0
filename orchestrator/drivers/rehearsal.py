"""One training step of every arm, in this process and without data: what can go wrong early goes wrong here.

Each step goes the way of a real trial: conductor, ledger, in-process driver, model, optimiser.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from orchestrator.abandoned import clear_folders
from orchestrator.conductor.first_report import judge_report
from orchestrator.drivers.inline import run_inline
from orchestrator.drivers.recorder import Recorder
from orchestrator.drivers.worker import Harness
from orchestrator.identity import SweepFolder, digest
from orchestrator.ledger.fold import records
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.faults import Faults, Keys
from orchestrator.plan.settings import System, checked
from orchestrator.plan.types import Arm, ConfirmPlan, Plan
from orchestrator.spec.checks import BASELINE
from orchestrator.spec.load import SpecFile
from orchestrator.spec.section import Resources
from orchestrator.trials import OutcomeKind, PlannedTrial, Record, error_line
from search_spaces.dimensions import Space
from trainables.assembly import build_model
from trainables.data.synthetic import synthetic_batch
from trainables.process_label import process_label
from trainables.protocol import Job, Measurement
from trainables.training.accumulator import Accumulator
from trainables.training.step import Learner, one_step

WORKLOAD = f"{__name__}:OneStep"
PREFIX = "haltsweep-rehearsal-"
SEED = 0
EXAMPLES = 2
LENGTH = 8
"""Tokens of the longer example: short, so that a wide and deep model still takes a fraction of a second."""
NEVER_S = 1e9


class OneStep:
    """The workload of a rehearsal: one optimiser step on a few random tokens of the task's vocabulary."""

    def __init__(self, job: Job) -> None:
        system = checked(job.settings)
        assert isinstance(system, System), "settings of a planned arm must be valid"
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._learner = Learner(
            build_model(system.model, system.shape, job.seed, device), system.train, seed=job.seed
        )
        batch = synthetic_batch(system.shape, EXAMPLES, min(LENGTH, system.shape.length_max), job.seed)
        self._batch = batch.to(device)
        self.finished = False
        """Whether the step has been taken."""

    def advance(self) -> Measurement:
        """Take the step. Raises Diverged if its loss or gradient is not finite."""
        learner, began = self._learner, perf_counter()
        accumulator = Accumulator(device=learner.device, scaled=learner.scaler.is_enabled())
        accumulator.add(0, one_step(learner, self._batch, 0))
        accumulator.flush()
        self.finished = True
        return Measurement(1, perf_counter() - began, accumulator.metrics())

    def save(self, folder: Path) -> None:
        """Nothing goes on from a rehearsal: the checkpoint holds its measurement alone."""

    def restore(self, folder: Path) -> None:
        """Never called: a rehearsal begins in an empty folder."""
        raise AssertionError(f"a rehearsal must begin in an empty folder, found {folder}")

    def close(self) -> None:
        """Free the model."""
        del self._learner, self._batch


def rehearse(source: SpecFile, plan: Plan) -> None:
    """Take one training step of every arm of `plan`, which was made from `source`.

    Raises PlanError with a fault an arm whose step did not end well.
    """
    faults = Faults(source)
    for arm, error in first_reports(plan):
        if error:
            faults.add(error, *_keys(arm))
    faults.raise_if_any()


def first_reports(plan: Plan, data_dir: Path | None = None) -> Iterator[tuple[str, str]]:
    """Run every arm to its first report, each as a trial of which nothing is kept.

    Arms of the built-in trainable take one training step on random tokens. Those that are trained alike on
    tasks of one shape, as on several divisions of the same data, would take the same step: it is taken once,
    for each. Everything is written to a temporary folder that is gone afterwards.

    Args:
        plan: Whose arms are run, with the settings that the spec gives them.
        data_dir: Where training code from outside finds its data; None for an empty folder.

    Yields:
        The name of each arm and what went wrong, which is empty if nothing did.
    """
    clear_folders(Path(tempfile.gettempdir()), PREFIX)  # of killed processes
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{process_label()}-") as folder:
        if plan.trainable is not None:
            for number, arm in enumerate(plan.arms):
                own = Path(folder) / str(number)
                why = _first_report(plan, arm, own, data_dir or own / "data")
                yield arm.name, f"the first report of {arm.name} must come, got {why}" if why else ""
        else:
            alike = _alike(plan)
            first = _shortened(plan, [arms[0] for arms in alike])
            found = {record.arm: record for record in _run(first, SweepFolder(Path(folder) / plan.name))}
            records_of = {arm.name: found[arms[0].name] for arms in alike for arm in arms}
            for arm in plan.arms:
                record = records_of[arm.name]
                well = record.outcome is OutcomeKind.FINISHED
                yield arm.name, "" if well else _message(arm.name, record)


def _first_report(plan: Plan, arm: Arm, folder: Path, data_dir: Path) -> str:
    """Return what went wrong until the first report of `arm`, and its checkpoint; empty if nothing did."""
    assert plan.trainable is not None, "of the built-in trainable one step is taken"
    harness = Harness(plan.trainable, NEVER_S)
    harness.start(Job(arm.settings, SEED, "confirm", data_dir=data_dir), folder)
    reply = harness.advance()
    if reply.ended is not None and reply.ended.kind is not OutcomeKind.FINISHED:
        return _outcome_text(reply.ended.kind, reply.ended.reason)
    saved = harness.stop(save=True)
    if reply.measurement is not None and (stop := judge_report(plan, reply.measurement)) is not None:
        return _outcome_text(stop.kind, stop.reason)
    left = saved.checkpoint is not None or reply.checkpoint is not None
    return "" if left else "no checkpoint: it cannot be saved"


def _alike(plan: Plan) -> list[list[Arm]]:
    """Arms in their order, those together of which a rehearsal would be the same: it sees no data."""
    found: dict[object, list[Arm]] = {}
    for arm in plan.arms:
        system = checked(arm.settings)
        seen = json.dumps([arm.settings["model"], arm.settings["train"]], sort_keys=True)
        found.setdefault((system.shape, seen) if isinstance(system, System) else arm.name, []).append(arm)
    return list(found.values())


def _shortened(plan: Plan, arms: Sequence[Arm]) -> Plan:
    """`arms` as written, one trial each, nothing searched.

    Half precision that is a GPU's is left to GPUs: without one, fp16 is refused, and bf16 is emulated at a
    tenth of the speed of fp32.
    """
    elsewhere = plan.resources.gpus > 0 and not torch.cuda.is_available()
    return replace(
        plan,
        arms=tuple(
            replace(arm, space=Space(()), settings=_in_fp32(arm.settings) if elsewhere else arm.settings)
            for arm in arms
        ),
        search=None,
        confirm=ConfirmPlan(best=1, seeds=(SEED,), splits=()),
        posthoc=(),
        resources=Resources(checkpoint_seconds=NEVER_S),
        wall_clock_hours=None,
        continue_on_error=True,
        trials=tuple(
            PlannedTrial(digest("rehearsal", arm.digest), arm.name, "confirm", 0, SEED, rank=0)
            for arm in arms
        ),
    )


def _in_fp32(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**settings, "train": {**settings["train"], "precision": "fp32"}}


def _run(plan: Plan, folder: SweepFolder) -> list[Record]:
    folder.root.mkdir()
    with Ledger.open(folder.ledger_url, plan.name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        recorder = Recorder(plan, ledger, lease, folder)
        run_inline(recorder, WORKLOAD, data_dir=folder.root, checkpoint_seconds=NEVER_S)
        recorder.close()
        return records(ledger.events(), plan)


def _message(arm: str, record: Record) -> str:
    """One line of `arm`: of a crash its error and the innermost place of its call stack."""
    assert record.outcome is not None, "a rehearsal runs to its end"
    outcome = _outcome_text(record.outcome, record.reason)
    return f"one training step of {arm} must end well, got {outcome}"


def _outcome_text(outcome: OutcomeKind, reason: str) -> str:
    return f"{outcome.value}: {error_line(reason)}"


def _keys(arm: str) -> Keys:
    label = arm.partition("[")[0]
    return (BASELINE,) if label == BASELINE else ("arms", label)
