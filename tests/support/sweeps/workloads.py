"""A workload that trains nothing: a quadratic surface, and every way a trial can go wrong.

Settings, all under `train`: `steps`; `fault` (diverge, nan, huge, raise, raise-at-once, oom, hang, kill,
exit, segfault or none) at step `fault_at`, or kill-each, once at every step; `kills`, how
often `kill` happens; `sleep_s` a step; `hold`, whether steps wait while there is a file `hold` in the data
folder; `tally`, whether steps are counted in its `steps.txt`, by `label`.
`model.x` is what a search should find: the best is 0.3.
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
"""Variable of the environment: steps take no time."""
BEST_X = 0.3
SECONDS_PER_STEP = 0.5
ODD_VALUES = {"nan": float("nan"), "huge": -1e200}


def score(x: float, shift: float, step: int, seed: int) -> float:
    """What step `step` is worth: rises with the steps, and has a little noise of the seed."""
    noise = derive_seed(seed, step) / 2**31 * 1e-3
    return 1.0 - (x - BEST_X) ** 2 - 0.5 / step + shift + noise


class Synthetic:
    """One trial. `train/chain` depends on every step taken, so a wrong resume shows."""

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
            raise RuntimeError("not even built")

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
        if self._train["fault"] == "kill-each" and self._first_time_here():
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
                faulthandler.disable()  # it would tell pytest's
                ctypes.string_at(0)
            case "kill" if self._killed_before() < self._train.get("kills", 1):
                os.kill(os.getpid(), signal.SIGKILL)

    def _count_step(self) -> None:
        """Work done more than once shows on the disk."""
        self._job.data_dir.mkdir(parents=True, exist_ok=True)
        with (self._job.data_dir / "steps.txt").open("a") as file:
            whose = (self._train.get("label", "-"), self._job.phase, self._job.seed)
            print(*whose, self._job.settings["model"], self._step, file=file)

    def _first_time_here(self) -> bool:
        """Whether this step was never taken before, in any process."""
        note = self._job.data_dir / f"taken-{self._step}"
        first = not note.exists()
        note.touch()
        return first

    def _killed_before(self) -> int:
        """Counts on the disk, for the process will not be there to remember."""
        tally = self._job.data_dir / f"kills-{self._job.seed}-{self._job.phase}"
        tally.parent.mkdir(parents=True, exist_ok=True)
        before = int(tally.read_text()) if tally.exists() else 0
        tally.write_text(str(before + 1))
        return before
