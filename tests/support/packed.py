"""Trials that can take their steps together, and go wrong as `model.faults` says: seed to fault.

In a process of its own, which the second seed kills once: `python -m tests.support.packed FOLDER`.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from orchestrator.identity import digest
from orchestrator.plan.types import AnswerPlan, Arm, Plan
from orchestrator.spec.section import Resources
from search_spaces.dimensions import Space
from tests.support import inline_sweep
from tests.support.plans import make_plan
from tests.trainables.training.fakes import FakeSources
from trainables.protocol import Job
from trainables.training import Training
from trainables.training.config import TrainConfig
from trainables.training.sources import Sources
from trainables.training.step import StepResult
from trainables.types import Batch

PATH = "tests.support.packed:Shaky"
FAULTY_STEP = 4
PACK = 3


class Shaky(Training):
    """A training of the box that diverges, fails before its step or, once, kills its process."""

    def _opened(self, job: Job, config: TrainConfig) -> Sources:
        return FakeSources(job, config, torch.device("cpu"))  # type: ignore[return-value]

    def _one_step(self, batch: Batch, step: int) -> StepResult:
        fault = self._job.settings["model"].get("faults", {}).get(str(self._job.seed))
        if step == FAULTY_STEP and fault == "raise":
            raise RuntimeError("a batch is missing")
        if step == FAULTY_STEP and fault == "diverge":
            with torch.no_grad():
                next(self.model.parameters()).fill_(torch.nan)
        if step == FAULTY_STEP and fault == "kill" and self._first_time_here():
            os.kill(os.getpid(), signal.SIGKILL)
        if step == FAULTY_STEP and fault == "print":
            print(f"seed {self._job.seed} was here")
        return super()._one_step(batch, step)

    def _first_time_here(self) -> bool:
        mark = self._job.data_dir / f"killed-{self._job.seed}"
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def plan(
    seeds: tuple[int, ...] = (1, 2, 3),
    *,
    arms: int = 1,
    faults: dict[str, str] | None = None,
    answer: AnswerPlan | None = None,
    **train: Any,
) -> Plan:
    """Confirm trials of tiny models on fake data (`tests.trainables.training.fakes`)."""
    made = []
    for number in range(arms):
        settings = {
            "task": {"name": "fake"},
            "model": {"width": 4 + number, "faults": faults or {}},
            "train": {"steps": 9, "batch_size": 4, "lr": 0.05, "report_every": 3} | train,
        }
        name = f"arm-{number}"
        made.append(Arm(name, "to be compared", settings, (), Space(()), (), digest(name, settings)))
    resources = Resources(checkpoint_seconds=1e-9, pack=PACK)
    return make_plan(made, trials_per_arm=0, seeds=seeds, resources=resources, answer=answer)


def deadly() -> Plan:
    """What the process runs."""
    return plan((1, 2, 3, 4), faults={"2": "kill"})


if __name__ == "__main__":
    (Path(sys.argv[1]) / "data").mkdir(parents=True, exist_ok=True)
    inline_sweep.main(Path(sys.argv[1]), None, deadly(), PATH, PACK)
