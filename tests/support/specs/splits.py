"""A split that another process opens, or dies over."""

import os
import signal
from itertools import count
from pathlib import Path

from tests.oracles.solvers.listops_solver import SMALL
from trainables import task_catalog
from trainables.data.store import open_split


def open_valid(data_dir: Path, killed_at: int | None = None) -> None:
    """Print the hash of what is there or built; killed when a file is brought to the disk that many times."""
    if killed_at is not None:
        calls = count(1)
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL) if next(calls) == killed_at else None
    print(open_split(task_catalog.task_config(SMALL), "valid", data_dir).content_hash)
