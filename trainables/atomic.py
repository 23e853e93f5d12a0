"""Files and folders come into being whole, flushed, and with their mode from the start."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

PUBLIC = 0o644
PRIVATE = 0o600
"""For a file that may hold a password."""
_UNFINISHED = ".tmp"


def write_atomically(path: Path, data: str | bytes, *, mode: int = PUBLIC) -> None:
    """Replace `path` by a file with `data` (text as UTF-8), or leave it as it was. Raises OSError.

    The file never has more rights than `mode` less the umask, and is on the disk before it has its name.
    """
    with replacing(path, mode=mode) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing(path: Path, *, mode: int = PUBLIC) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when it is whole and on the disk, or leaves no trace."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}{_UNFINISHED}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise


def clear_unfinished(path: Path) -> None:
    """Delete what killed processes left of replacements of `path`; nobody may be replacing it."""
    for orphan in path.parent.glob(f".{path.name}.*{_UNFINISHED}"):
        # What bears such a name by chance, and is no file, is left alone.
        if orphan.is_file() and not orphan.is_symlink():
            with suppress(OSError):
                orphan.unlink()


def flush(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
