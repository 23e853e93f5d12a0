"""A workload that reports facts about its process."""

import os
import sys
from pathlib import Path

from trainables.protocol import Job, Measurement

PROCESS_FACTS = "tests.support.ray.ray_workloads:ProcessFacts"


class ProcessFacts:
    """Two reports with facts about the process as metrics."""

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
            "server": os.getppid(),
            "ray": "ray" in sys.modules,
            "file_of_launch_folder": Path("pyproject.toml").exists(),
        }
        values = {f"worker/{name}": float(value) for name, value in facts.items()}
        return Measurement(self._step, 0.0, values | {"valid/score": 0.0})

    def save(self, folder: Path) -> None:
        (folder / "step").write_text(str(self._step))

    def restore(self, folder: Path) -> None:
        self._step = int((folder / "step").read_text())

    def close(self) -> None:
        pass
