"""Write files atomically: complete, flushed to disk and with their final mode before they are named."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

PUBLIC = 0o644
PRIVATE = 0o600
"""Mode of a file that may contain a password."""
_TEMPORARY_SUFFIX = ".tmp"


def write_atomically(path: Path, data: str | bytes, *, mode: int = PUBLIC) -> None:
    """Replace `path` by a file with `data` (text as UTF-8), or leave it unchanged. Raises OSError.

    The file never has more permissions than `mode` less the umask, and is flushed to disk before it gets its
    name.
    """
    with open_replacement(path, mode=mode) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def open_replacement(path: Path, *, mode: int = PUBLIC) -> Iterator[IO[bytes]]:
    """Yield a file that replaces `path` once it is complete and flushed, or is deleted on an error."""
    temporary_path = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}{_TEMPORARY_SUFFIX}")
    descriptor = os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary_path.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary_path.unlink()
        raise


def clear_unfinished(path: Path) -> None:
    """Delete unfinished replacements of `path` by killed processes; no process may be replacing it."""
    for orphan in path.parent.glob(f".{path.name}.*{_TEMPORARY_SUFFIX}"):
        # Leave folders and links alone, even if their name matches.
        if orphan.is_file() and not orphan.is_symlink():
            with suppress(OSError):
                orphan.unlink()


def flush(path: Path) -> None:
    """Flush a file, or the directory entries of a folder, to disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
