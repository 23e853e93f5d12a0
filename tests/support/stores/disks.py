"""A small disk that a test can fill."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

BALLAST_FILE = "ballast"


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a file system of `size` bytes at `folder`. Skips the test if mounting is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes=1500", "tmpfs", str(folder)]
    completed_process = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed_process.returncode:
        pytest.skip(f"file systems cannot be mounted here: {completed_process.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, free_bytes: int = 0) -> None:
    """Fill the disk until no more than `free_bytes` are free."""
    handle = os.open(disk / BALLAST_FILE, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (1 << 16, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    os.write(handle, bytes(size))
        if free_bytes:
            os.ftruncate(handle, max(0, os.fstat(handle).st_size - free_bytes))
    finally:
        os.close(handle)


def clear(disk: Path) -> None:
    """Remove the content that `fill` wrote."""
    (disk / BALLAST_FILE).unlink()
