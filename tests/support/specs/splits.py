"""Open a split in another process, which a test may kill."""

import os
import signal
from itertools import count
from pathlib import Path

from tests.oracles.solvers.listops_solver import SMALL
from trainables import task_catalog
from trainables.data.store import open_split


def open_valid(data_dir: Path, kill_at: int | None = None) -> None:
    """Print the hash of the opened or built split; kill this process at its `kill_at`-th fsync."""
    if kill_at is not None:
        calls = count(1)
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL) if next(calls) == kill_at else None
    print(open_split(task_catalog.task_config(SMALL), "valid", data_dir).content_hash)
