"""Workloads that tell about the process they run in."""

import os
import sys
from pathlib import Path
from typing import Any

from trainables.protocol import Job, Measurement

TELLING = "tests.support.ray_workloads:Telling"
LEAKING = "tests.support.ray_workloads:Leaking"
LEAK_BYTES = 320 << 20
_LEAKED: list[Any] = []


class Telling:
    """Two reports with facts about the worker as metrics."""

    def __init__(self, job: Job) -> None:
        self._step = 0

    @property
    def finished(self) -> bool:
        return self._step == 2

    def advance(self) -> Measurement:
        import torch

        self._step += 1
        facts = {
            "pid": os.getpid(),
            "threads": torch.get_num_threads(),
            "omp": int(os.environ["OMP_NUM_THREADS"]),
            "devices": torch.cuda.device_count(),
            "tune": "ray.tune" in sys.modules,
            "in_folder_of_launcher": Path("pyproject.toml").exists(),
        }
        values = {f"worker/{name}": float(value) for name, value in facts.items()}
        return Measurement(self._step, 0.0, values | {"valid/score": 0.0})

    def save(self, folder: Path) -> None:
        (folder / "step").write_text(str(self._step))

    def restore(self, folder: Path) -> None:
        self._step = int((folder / "step").read_text())

    def close(self) -> None:
        pass


class Leaking(Telling):
    """Keeps memory that it should have freed."""

    def close(self) -> None:
        _LEAKED.append(bytearray(b"x") * LEAK_BYTES)
