"""Detect file changes that raise no audit event: changes by other programs and by native code."""

import os
import sys
from collections import deque
from collections.abc import Callable, Collection
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
    unvisited_folders = deque([str(root)])
    while unvisited_folders and max_entries > 0:
        try:
            entries = list(os.scandir(unvisited_folders.popleft()))
        except OSError:
            continue
        max_entries -= len(entries)
        for entry in entries:
            if entry.is_symlink() or is_ignored(entry):
                continue
            if entry.is_dir():
                unvisited_folders.append(entry.path)
            else:
                try:
                    versions[entry.path] = version_of(entry.path)
                except OSError:  # deleted meanwhile
                    continue
    return versions


def files_written_by_session() -> tuple[Path, ...]:
    """Return the files that processes of this login session (`os.getsid`) have open for writing.

    An example is the target of `> launch.log` or `| tee launch.log`.
    """
    session, written_paths = os.getsid(0), set[Path]()
    for process in _numbered(Path("/proc")):
        try:
            if os.getsid(int(process.name)) != session:
                continue
            descriptors = _numbered(process / "fd")
        except OSError:
            continue
        files = (_written_file(process, descriptor.name) for descriptor in descriptors)
        written_paths.update(file for file in files if file is not None)
    return tuple(sorted(written_paths))


def _numbered(folder: Path) -> Collection[Path]:
    try:
        return [path for path in folder.iterdir() if path.name.isdecimal()]
    except OSError:  # the process has ended, or belongs to another user
        return ()


def _written_file(process: Path, descriptor: str) -> Path | None:
    try:
        flags = (process / "fdinfo" / descriptor).read_text(encoding="ascii").split("flags:")[1].split()[0]
        path = (process / "fd" / descriptor).readlink()
        return path if int(flags, 8) & (os.O_WRONLY | os.O_RDWR) and path.is_file() else None
    except (OSError, IndexError, ValueError):
        return None
