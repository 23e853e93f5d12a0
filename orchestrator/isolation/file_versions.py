"""Detect file changes that raise no audit event: changes by other programs and by native code."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

Version = tuple[int, int, int]
"""Inode, size in bytes and modification time in nanoseconds of a file."""
STARTERS = frozenset({"popen_spawn_posix", "popen_forkserver", "popen_loky_posix"})
"""Modules of multiprocessing and joblib that start interpreters without an audit event."""
NATIVE_WRITERS = frozenset({"polars", "duckdb", "pyarrow.csv"})
"""Modules that write text files in native code."""


def may_write_unseen() -> bool:
    """Return whether an imported module may change arbitrary files without an audit event."""
    return any(name in NATIVE_WRITERS or name.rpartition(".")[2] in STARTERS for name in tuple(sys.modules))


def version_of(path: str) -> Version:
    """Return the version of a file, which differs after a change of the file.

    Raises:
        OSError: The file is not readable.
    """
    status = Path(path).stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def versions_below(
    root: Path, is_ignored: Callable[["os.DirEntry[str]"], bool], max_entries: int
) -> dict[str, Version]:
    """Return the versions of files below a folder, breadth first.

    Args:
        root: The folder; a missing folder counts as empty.
        is_ignored: Whether to exclude a file or a folder. Links are always excluded.
        max_entries: Maximum number of entries to read; further folders are skipped.

    Returns:
        Versions by absolute path.
    """
    versions: dict[str, Version] = {}
    folders = [str(root)]
    for folder in folders:  # extended below
        try:
            entries = list(os.scandir(folder)) if max_entries > 0 else []
        except OSError:
            continue
        max_entries -= len(entries)
        for entry in entries:
            if not entry.is_symlink() and not is_ignored(entry):
                if entry.is_dir():
                    folders.append(entry.path)
                else:
                    with suppress(OSError):  # deleted meanwhile
                        versions[entry.path] = version_of(entry.path)
    return versions


def output_files() -> tuple[Path, ...]:
    """Return the files to which this process writes its output, as after `> launch.log`."""
    outputs = (Path("/proc/self/fd/1"), Path("/proc/self/fd/2"))
    return tuple({output.readlink() for output in outputs if output.is_file()})
