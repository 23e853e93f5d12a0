"""One writer of projections at a time, on this machine. The lock dies with its process."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.disk import remedy
from orchestrator.errors import StoreError
from orchestrator.regular_files import other_kind

POLL_S = 0.05


@contextmanager
def projection_lock(root: Path, wait_s: float) -> Iterator[None]:
    """Hold the lock of the sweep folder `root`. Raises StoreError if another keeps it for `wait_s`."""
    file = root / ".tracking.lock"
    descriptor = _opened(file)
    try:
        deadline = time.monotonic() + wait_s
        while not _locked(descriptor):
            if time.monotonic() >= deadline:
                holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
                raise StoreError(
                    f"one process at a time may write MLflow and Parquet of {root.name!r}, and process "
                    f"{holder or '(unknown)'} is doing it; it brings them up to date by "
                    "itself, so wait for it, or stop it and try again"
                )
            time.sleep(POLL_S)
        with suppress(OSError):  # a full disk does not take the number, and the lock is held all the same
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _opened(file: Path) -> int:
    """Never what a link leads to, for it is written to; a pipe is not waited for. Raises StoreError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(file, flags, 0o666)
    except OSError as error:
        if not file.is_symlink():
            raise StoreError(f"the lock {str(file)!r} could not be made: {error}; {remedy(error)}") from error
        kind = "a symbolic link"
    else:
        kind = other_kind(os.fstat(descriptor).st_mode)
        if not kind:
            return descriptor
        os.close(descriptor)
    raise StoreError(f"the lock {str(file)!r} must be a file, and is {kind}; delete it")


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
