"""The trial of the benchmark of orchestration: no work, but torch is imported, as in every real trial."""

import json
from pathlib import Path

import torch

from trainables.protocol import Job, Measurement


class Quadratic:
    """A workload of `train.steps` reports."""

    def __init__(self, job: Job) -> None:
        assert torch.__version__, "the trial must import torch"
        self._x = job.settings["model"]["x"]
        self._steps = job.settings["train"]["steps"]
        self._step = 0

    @property
    def finished(self) -> bool:
        return bool(self._step >= self._steps)

    def advance(self) -> Measurement:
        self._step += 1
        return Measurement(self._step, 0.0, {"valid/score": -((self._x - 0.3) ** 2) - 1 / self._step})

    def save(self, folder: Path) -> None:
        (folder / "state.json").write_text(json.dumps(self._step))

    def restore(self, folder: Path) -> None:
        self._step = json.loads((folder / "state.json").read_text())

    def close(self) -> None:
        pass
