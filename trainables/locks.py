"""Advisory locks between processes of one machine. The system lets go of them when their holder dies."""

import fcntl
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOOK_S = 0.05
"""Between two tries."""
NOTE_BYTES = 300


@contextmanager
def locked(path: Path, patience_s: float, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the exclusive lock at `path`, a file that is made for it, and name this process in it.

    Who waits for longer than `patience_s` calls `on_wait` once with the holder in words; it may raise, else
    the lock is waited for without end. Raises OSError where the file cannot be made, or is none: a link is
    not followed, for the file is written to, and a pipe is not waited for.
    """
    descriptor = _opened(path)
    try:
        until = time.monotonic() + patience_s
        while not (held := _try(descriptor)) and time.monotonic() < until:
            time.sleep(LOOK_S)
        if not held:
            on_wait(os.pread(descriptor, NOTE_BYTES, 0).decode(errors="replace").strip() or "another process")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(OSError):  # a full disk does not take the note, and the lock is held all the same
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock at `path`; not if there is none. Raises OSError."""
    if not path.is_file() or path.is_symlink():  # nobody of ours holds a pipe or a link
        return False
    try:
        with path.open("rb") as file:
            return not _try(file.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _opened(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FileExistsError(f"the lock {str(path)!r} must be a file")


def _try(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
