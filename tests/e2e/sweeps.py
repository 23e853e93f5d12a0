"""A finished sweep with several arms: real ledger, recorder and tracking, invented results."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.execution.inline import run_inline
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.trial.trial_jobs import JobEncoder
from orchestrator.identity import SweepFolder, digest
from orchestrator.ledger.fold import records
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import to_json
from orchestrator.plan.types import AnswerPlan, Arm, Change, Plan
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.tracked_values import arm_metrics
from orchestrator.spec.section import Objective
from orchestrator.tracking.summary import ArmSummary
from orchestrator.tracking.sync import sync
from orchestrator.trials import Record
from search_spaces.dimensions import Dimension, Float, Space
from tests.support.specs.plans import make_plan
from tests.support.sweeps.workloads import Synthetic
from trainables.protocol import Job, Measurement

SPLITS = ("near-iid", "length-200-300")
SEEDS = (101, 102, 103)
SPACE = Space((Dimension("model.x", Float(0.0, 1.0)),))
BASELINE: Mapping[str, Any] = {
    "task": {"name": "synthetic", "train_length_max": 100},
    "model": {"name": "surface", "gate": True, "halt": {"unit": "sequence"}, "x": 0.5, "shift": 0.0},
    "train": {"steps": 3, "lr": 5e-4, "fault": None},
}
ARMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "baseline": ("", {}),
    "minus-gate": ("plain feed-forward block", {"gate": False, "shift": -0.2}),
    "minus-global-halt": ("each token decides for itself", {"halt": {"unit": "token"}, "shift": -0.1}),
    "no-halt": ("always all layers", {"halt": None, "shift": -0.05}),
}


class Comparable(Synthetic):
    """The synthetic surface with the quantities that reports compare."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._splits = job.splits
        self._noise = (job.seed % 7 - 3) / 50

    def advance(self) -> Measurement:
        """Return accuracy and depth of the validation split, and at the last step of every test split."""
        measurement = super().advance()
        value = measurement.metrics["valid/score"] + self._noise
        metrics = {"valid/accuracy": value, "valid/depth": 4 + 2 * value, "train/loss": 1 - value}
        for position, split in enumerate(self._splits if self.finished else (), start=1):
            metrics |= {
                f"{split}/accuracy": value / position,
                f"{split}/depth": 4 + value * position,
                f"{split}/floor": 0.1,
            }
        return Measurement(measurement.step, measurement.seconds, metrics)


@dataclass(frozen=True)
class Sweep:
    """A finished sweep, and the URI of its MLflow store."""

    folder: SweepFolder
    plan: Plan
    records: list[Record]
    uri: str


def finished_sweep(runs: Path, name: str = "gates") -> Sweep:
    """Create a sweep below `runs` that is searched, confirmed, reported and in MLflow."""
    folder = SweepFolder(runs / name)
    folder.root.mkdir(parents=True)
    plan = _plan(name)
    folder.plan.write_text(to_json(plan))
    uri = f"sqlite:///{(runs / 'mlflow.db').resolve()}"
    with Ledger.open(folder.ledger_url, name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        recorder = Recorder(plan, ledger, lease, folder)
        run_inline(recorder, JobEncoder(f"{__name__}:Comparable", 30.0, 1.0, 0.0, runs / "data"))
        recorder.close()
        ledger.release(lease)
        trial_records = records(ledger.events(), plan)
        sync(folder, ledger, uri, ArmSummary(arm_metrics(summarise(plan, trial_records))))
    return Sweep(folder, plan, trial_records, uri)


def _plan(name: str) -> Plan:
    arms = [_arm(label, reason, changes) for label, (reason, changes) in ARMS.items()]
    objectives = (Objective(metric="valid/accuracy", goal="max"),)
    plan = make_plan(arms, trials_per_arm=2, seeds=SEEDS, objectives=objectives)
    assert plan.confirm is not None
    answer = AnswerPlan((f"{SPLITS[0]}/accuracy",), None, 0.05, len(arms) - 1)
    return replace(plan, name=name, confirm=replace(plan.confirm, splits=SPLITS), answer=answer)


def _arm(name: str, reason: str, changes: Mapping[str, Any]) -> Arm:
    settings = {**BASELINE, "model": {**BASELINE["model"], **changes}}
    changed_fields = tuple(
        Change(f"model.{key}", BASELINE["model"][key], value) for key, value in changes.items()
    )
    reference = "" if name == "baseline" else "baseline"
    return Arm(name, reason, settings, changed_fields, SPACE, (), digest(name, settings), reference)
