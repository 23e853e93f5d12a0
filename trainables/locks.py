"""Provide locks between processes of one machine; a lock is released when its holder ends."""

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

HOLDER_NAME_BYTES = 300


@contextmanager
def hold_lock(path: Path, patience_s: float, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the exclusive lock at `path`, and write the name of this process into that file.

    A process that has waited for `patience_s` seconds calls `on_wait` once with a description of the holder.
    `on_wait` may raise; otherwise the process waits without a time limit.

    Raises:
        OSError: The file cannot be created, or `path` is not a regular file.
    """
    path.parent.stat()  # `FileLock` would create the folder
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise FileExistsError(f"the lock {str(path)!r} must be a file")
    lock = FileLock(path, fallback_to_soft=False, on_acquired=_write_holder)
    try:
        held_lock = lock.acquire(timeout=patience_s)
    except Timeout:
        on_wait(_read_holder(path) or "another process")
        held_lock = lock.acquire()
    with held_lock:
        yield


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock at `path`; False if the file is missing. Raises OSError."""
    if not path.is_file() or path.is_symlink():  # this package never locks a pipe or a link
        return False
    try:
        with path.open("rb") as file:
            # `FileLock` would need write access, and two readers would exclude each other.
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _write_holder(descriptor: int) -> None:
    with suppress(OSError):  # on a full disk the note cannot be written, but the lock is held
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)


def _read_holder(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:
        return file.read(HOLDER_NAME_BYTES).decode(errors="replace").strip()
    return ""
