"""A workload without training: a quadratic surface, and every kind of failure of a trial.

Settings below `train`:
    steps: Number of steps.
    fault: What goes wrong at step `fault_at`: diverge, nan, huge, raise, raise-at-once, oom, hang, kill,
        exit, segfault or none. kill-each kills once at every step instead.
    kills: Number of times that `kill` happens.
    sleep_s: Duration of a step.
    hold: Whether steps wait while the data folder contains a file `hold`.
    tally: Whether steps are written to `steps.txt` of the data folder, with `label`.

A search should find the best `model.x`, 0.3.
"""

import ctypes
import faulthandler
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from orchestrator.identity import derive_seed
from trainables.protocol import Diverged, Job, Measurement

PATH = "tests.support.sweeps.workloads:Synthetic"
HOLD = "hold"
HURRY = "HALTSWEEP_TEST_HURRY"
"""Environment variable that skips the sleep of steps."""
BEST_X = 0.3
SECONDS_PER_STEP = 0.5
ODD_VALUES = {"nan": float("nan"), "huge": -1e200}


def score(x: float, shift: float, step: int, seed: int) -> float:
    """Return the score of a step: it rises with the steps, and has small noise that depends on the seed."""
    noise = derive_seed(seed, step) / 2**31 * 1e-3
    return 1.0 - (x - BEST_X) ** 2 - 0.5 / step + shift + noise


class Synthetic:
    """One trial. `train/chain` depends on every step, so a wrong resume changes it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._train: dict[str, Any] = dict(job.settings["train"])
        self._step = 0
        self._chain = job.seed
        if job.phase == "posthoc":
            assert job.source is not None, "a re-evaluation must have a source"
            self.restore(job.source)
            self._train["steps"] = self._step
            self._step -= 1
        if self._train["fault"] == "raise-at-once":
            raise RuntimeError("the workload cannot be built")

    @property
    def finished(self) -> bool:
        return self._step >= self._train["steps"]

    def advance(self) -> Measurement:
        if HURRY not in os.environ:
            time.sleep(self._train.get("sleep_s", 0.0))
        while self._train.get("hold") and (self._job.data_dir / HOLD).exists():
            time.sleep(0.01)
        self._step += 1
        if self._train.get("tally"):
            self._count_step()
        if self._train["fault"] == "kill-each" and self._is_first_time():
            os.kill(os.getpid(), signal.SIGKILL)
        if self._step == self._train.get("fault_at", 2):
            self._fail()
        self._chain = derive_seed(self._chain, self._step)
        model = self._job.settings["model"]
        value = score(model["x"], model["shift"], self._step, self._job.seed)
        metrics = {"valid/score": value, "valid/cost": model["x"], "train/chain": float(self._chain)}
        if self.finished:
            metrics |= {f"{split}/score": value for split in self._job.splits}
        if self._train["fault"] in ODD_VALUES and self._step == self._train.get("fault_at", 2):
            metrics["valid/score"] = ODD_VALUES[self._train["fault"]]
        return Measurement(self._step, self._step * SECONDS_PER_STEP, metrics)

    def save(self, folder: Path) -> None:
        (folder / "state.json").write_text(json.dumps([self._step, self._chain]))

    def restore(self, folder: Path) -> None:
        self._step, self._chain = json.loads((folder / "state.json").read_text())

    def close(self) -> None:
        self._step = -1

    def _fail(self) -> None:
        match self._train["fault"]:
            case "diverge":
                raise Diverged(self._step, float("nan"))
            case "raise":
                raise KeyError("a mistake of the workload")
            case "hang":
                time.sleep(1e6)
            case "oom":
                raise MemoryError("no room for the batch")
            case "exit":
                os._exit(3)
            case "segfault":
                faulthandler.disable()  # else pytest's handler prints the crash
                ctypes.string_at(0)
            case "kill" if self._killed_before() < self._train.get("kills", 1):
                os.kill(os.getpid(), signal.SIGKILL)

    def _count_step(self) -> None:
        """Write the step to a file, so that tests see repeated steps."""
        self._job.data_dir.mkdir(parents=True, exist_ok=True)
        with (self._job.data_dir / "steps.txt").open("a") as file:
            labels = (self._train.get("label", "-"), self._job.phase, self._job.seed)
            print(*labels, self._job.settings["model"], self._step, file=file)

    def _is_first_time(self) -> bool:
        """Return whether no process has taken this step before."""
        marker = self._job.data_dir / f"taken-{self._step}"
        first = not marker.exists()
        marker.touch()
        return first

    def _killed_before(self) -> int:
        """Return the number of earlier kills, counted on disk because the process ends."""
        tally = self._job.data_dir / f"kills-{self._job.seed}-{self._job.phase}"
        tally.parent.mkdir(parents=True, exist_ok=True)
        count = int(tally.read_text()) if tally.exists() else 0
        tally.write_text(str(count + 1))
        return count
