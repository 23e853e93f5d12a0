"""A disk of a test's own, small enough to be filled."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

BALLAST = "ballast"


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of `size` bytes, mounted at `folder`. Skips where that is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes=1500", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"file systems cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, keep: int = 0) -> None:
    """Leave no more than `keep` bytes free."""
    handle = os.open(disk / BALLAST, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (1 << 16, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    os.write(handle, bytes(size))
        if keep:
            os.ftruncate(handle, max(0, os.fstat(handle).st_size - keep))
    finally:
        os.close(handle)


def clear(disk: Path) -> None:
    """Make room again."""
    (disk / BALLAST).unlink()
