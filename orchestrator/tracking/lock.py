"""One writer of projections at a time, on this machine. The lock dies with its process."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import StoreError

POLL_S = 0.05


@contextmanager
def projection_lock(root: Path, wait_s: float) -> Iterator[None]:
    """Hold the lock of the sweep folder `root`. Raises StoreError if another keeps it for `wait_s`."""
    file = root / ".tracking.lock"
    with file.open("a+", encoding="utf-8") as stream:
        deadline = time.monotonic() + wait_s
        while not _locked(stream.fileno()):
            if time.monotonic() >= deadline:
                stream.seek(0)
                raise StoreError(
                    f"one process at a time may write MLflow and Parquet of {root.name!r}, and process "
                    f"{stream.read().strip() or '(unknown)'} is doing it; it brings them up to date by "
                    "itself, so wait for it, or stop it and try again"
                )
            time.sleep(POLL_S)
        stream.truncate(0)
        stream.write(str(os.getpid()))
        stream.flush()
        yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
