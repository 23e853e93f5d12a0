"""Open only regular files: a pipe would block the reader, and a device may never end."""

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


def non_file_kind(mode: int) -> str:
    """Return the kind of an entry with this `st_mode` as text; empty for a regular file."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "")


def describe_non_file(path: Path) -> str:
    """Return the kind of an entry at `path` other than a file; empty for a file or for no entry."""
    try:
        return non_file_kind(path.stat().st_mode)
    except OSError:  # opening the file raises the error
        return ""


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the entry at `path`, which identify it; None if it does not exist."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def open_regular(file: Path) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        OSError: If `file` cannot be opened, or is not a regular file.
    """
    # O_NONBLOCK: opening a pipe would otherwise wait for a writer. It does not affect regular files.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if kind := non_file_kind(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{file} must be a file, and is {kind}")
    return os.fdopen(descriptor, "rb")


def read_regular(file: Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: If `file` cannot be read, or is not a regular file.
    """
    with open_regular(file) as stream:
        return stream.read()
