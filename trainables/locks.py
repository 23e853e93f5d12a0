"""Provide advisory locks between processes of one machine; released when their holder ends."""

import fcntl
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RETRY_INTERVAL_S = 0.05
"""Seconds between two attempts."""
HOLDER_NAME_BYTES = 300


@contextmanager
def hold_lock(path: Path, patience_s: float, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the exclusive lock at `path`, and write the name of this process into that file.

    A process that has waited for `patience_s` seconds calls `on_wait` once with a description of the holder.
    `on_wait` may raise; otherwise the process waits without a time limit.

    Raises:
        OSError: The file cannot be created, or `path` is not a regular file. Links are refused because the
            lock writes to the file, and pipes because opening one can block.
    """
    descriptor = _open_lock_file(path)
    try:
        deadline = time.monotonic() + patience_s
        while not (has_lock := _try_lock(descriptor)) and time.monotonic() < deadline:
            time.sleep(RETRY_INTERVAL_S)
        if not has_lock:
            on_wait(
                os.pread(descriptor, HOLDER_NAME_BYTES, 0).decode(errors="replace").strip()
                or "another process"
            )
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(OSError):  # on a full disk the note cannot be written, but the lock is held
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock at `path`; False if the file is missing. Raises OSError."""
    if not path.is_file() or path.is_symlink():  # this package never locks a pipe or a link
        return False
    try:
        with path.open("rb") as file:
            return not _try_lock(file.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _open_lock_file(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FileExistsError(f"the lock {str(path)!r} must be a file")


def _try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
