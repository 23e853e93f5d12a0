"""Files come into being whole, flushed, and with their mode from the start."""

import os
import uuid
from contextlib import suppress
from pathlib import Path

PUBLIC = 0o644
PRIVATE = 0o600
"""For a file that may hold a password."""


def write_atomically(path: Path, data: str | bytes, *, mode: int = PUBLIC) -> None:
    """Replace `path` by a file with `data` (text as UTF-8), or leave it as it was. Raises OSError.

    The file never has more rights than `mode` less the umask, and is on the disk before it has its name.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data.encode() if isinstance(data, str) else data)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise
