"""Reads ordinary files alone: a pipe would be waited for, and a device never ends."""

import os
import stat
from io import BufferedReader
from pathlib import Path


def open_ordinary(file: Path) -> BufferedReader:
    """`file`, open to be read. Raises OSError, of something else than a file as well."""
    # O_NONBLOCK: to open a pipe would wait for who writes to it. Reading files does not mind.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{file} must be a file, and is something else")
    return os.fdopen(descriptor, "rb")


def read_ordinary(file: Path) -> bytes:
    """What is in `file`. Raises OSError, of something else than a file as well."""
    with open_ordinary(file) as stream:
        return stream.read()
