"""What a worker on another machine is told: a job and how to run it, as one line of JSON."""

import json
from dataclasses import dataclass
from pathlib import Path

from orchestrator.conductor.recorder import Attempt
from orchestrator.identity import canonical
from trainables.protocol import Job


@dataclass(frozen=True, slots=True)
class Assignment:
    """One attempt at a trial, as seen from the worker."""

    workload: str
    """`module:Class`, importable where the worker runs."""
    checkpoint_seconds: float
    cpus: float
    gpus: float
    checkpoints: Path
    job: Job


@dataclass(frozen=True, slots=True)
class Orders:
    """What all attempts of a sweep have in common."""

    workload: str
    checkpoint_seconds: float
    cpus: float
    gpus: float
    data_dir: Path

    def encode(self, attempt: Attempt) -> str:
        """One attempt as JSON; paths become absolute, for workers run elsewhere."""
        job = attempt.job(self.data_dir)
        return canonical(
            {
                "workload": self.workload,
                "checkpoint_seconds": self.checkpoint_seconds,
                "cpus": self.cpus,
                "gpus": self.gpus,
                "checkpoints": str(attempt.checkpoints.resolve()),
                "settings": job.settings,
                "seed": job.seed,
                "phase": job.phase,
                "splits": job.splits,
                "data_dir": str(job.data_dir.resolve()),
                "source": str(job.source.resolve()) if job.source is not None else None,
            }
        )


def decode(text: str) -> Assignment:
    """What `Orders.encode` wrote."""
    told = json.loads(text)
    job = Job(
        settings=told["settings"],
        seed=told["seed"],
        phase=told["phase"],
        splits=tuple(told["splits"]),
        data_dir=Path(told["data_dir"]),
        source=Path(told["source"]) if told["source"] is not None else None,
    )
    return Assignment(
        told["workload"],
        told["checkpoint_seconds"],
        told["cpus"],
        told["gpus"],
        Path(told["checkpoints"]),
        job,
    )
