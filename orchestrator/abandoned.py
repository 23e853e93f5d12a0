"""Clears away what killed processes left half-made, and nothing else: never through a link, never another's.

Whatever stands in the way is left alone and stops nobody: to clear is a courtesy, not a condition.
Temporary folders of launches and workers have names by which they are found.
"""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from trainables.process_label import origin
from trainables.protocol import TRIALS

RAY = "hs-ray-"
"""Files of a Ray of this machine's own and of Tune; the label of a process follows, as in all of these."""
CHECKPOINTS = "haltsweep-checkpoints-"
"""Copies of checkpoints that are kept elsewhere."""
UNKNOWN_S = 7 * 24 * 3600.0
"""Age in seconds at which a folder is removed if nobody can look up its process."""
SHORT = 9
"""Ray's sockets are up to 98 bytes below it, and the path of a socket may have 107."""


def clear_folders(parent: Path, prefix: str) -> None:
    """Remove folders of this user in `parent` called `<prefix><process label>-...` whose process is gone.

    The folder of a process in another container or on another machine that shares `parent` is removed only
    when the folder is old, since that process cannot be looked up.
    """
    for path in _named(parent, prefix):
        label = path.name.removeprefix(prefix).split("-")
        is_dead = _is_old(path) if label[1:2] != [origin()] else not _is_running(label[0])
        if is_dead and own_folder(path):
            shutil.rmtree(path, ignore_errors=True)


def own_folder(path: Path) -> bool:
    """Whether `path` is a folder of this user; a link to one is none."""
    return _own(path, stat.S_ISDIR)


def own_file(path: Path) -> bool:
    """Whether `path` is an ordinary file of this user; a link, a pipe or a device is none."""
    return _own(path, stat.S_ISREG)


def _own(path: Path, is_kind: Callable[[int], bool]) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return is_kind(found.st_mode) and found.st_uid == os.getuid()


def _named(parent: Path, prefix: str) -> Iterator[Path]:
    try:
        names = [entry.name for entry in os.scandir(parent)]
    except OSError:
        return
    yield from (parent / name for name in names if name.startswith(prefix))


def _is_running(pid: str) -> bool:
    # A process id has at most 9 digits.
    return not (pid.isascii() and pid.isdecimal() and len(pid) < 10) or psutil.pid_exists(int(pid))


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.lstat().st_mtime > UNKNOWN_S
    except OSError:
        return False


def short_folder() -> Path:
    """Where Ray's files go: the temporary folder of this user, unless its path is too long for sockets."""
    folder = Path(tempfile.gettempdir())
    return folder if len(bytes(folder)) <= SHORT else Path("/tmp")  # noqa: S108 - mkdtemp makes a private folder in it  # nosec B108


def clear_abandoned() -> None:
    """Remove what killed launches and workers of this user left behind."""
    clear_folders(short_folder(), RAY)
    for prefix in (CHECKPOINTS, TRIALS):
        clear_folders(Path(tempfile.gettempdir()), prefix)
