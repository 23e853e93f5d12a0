"""What is at a path. Ordinary files alone are read: a pipe would be waited for, and a device never ends."""

import os
import stat
from io import BufferedReader
from pathlib import Path

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def other_kind(mode: int) -> str:
    """What an entry of this `st_mode` is in words; empty for a file."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "")


def found_instead(path: Path) -> str:
    """What is at `path` instead of a file, in words; empty for a file, a link to one, or nothing."""
    try:
        return other_kind(path.stat().st_mode)
    except OSError:  # whoever opens it gets the error
        return ""


def entry_of(path: Path) -> tuple[int, int] | None:
    """Device and number of what is at `path`, which tell whether it is still the same; None if nothing is."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def open_ordinary(file: Path) -> BufferedReader:
    """`file`, open to be read. Raises OSError, of something else than a file as well."""
    # O_NONBLOCK: to open a pipe would wait for who writes to it. Reading files does not mind.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if kind := other_kind(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{file} must be a file, and is {kind}")
    return os.fdopen(descriptor, "rb")


def read_ordinary(file: Path) -> bytes:
    """What is in `file`. Raises OSError, of something else than a file as well."""
    with open_ordinary(file) as stream:
        return stream.read()
