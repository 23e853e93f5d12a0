"""Clears away what killed processes left half-made, and nothing else: never through a link, never another's.

Whatever stands in the way is left alone and stops nobody: to clear is a courtesy, not a condition.
Temporary folders of launches and workers have names by which they are found.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from trainables.protocol import TRIALS

RAY = "haltsweep-ray-"
"""What a Ray of this machine's own and Tune write; the process id follows."""
CHECKPOINTS = "haltsweep-checkpoints-"
"""Copies of checkpoints that are kept elsewhere; the process id follows."""
SHORT = 9
"""Ray's sockets are up to 98 bytes below it, and the path of a socket may have 107."""


def clear_folders(parent: Path, prefix: str) -> None:
    """Remove folders of this user in `parent` called `<prefix><pid>-...` whose process is gone."""
    for path in _named(parent, prefix):
        if _of_dead_process(path.name.removeprefix(prefix)) and own_folder(path):
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


def _of_dead_process(rest: str) -> bool:
    pid = rest.partition("-")[0]
    # Longer ones are no process ids, and the system does not take them.
    return pid.isascii() and pid.isdecimal() and len(pid) < 10 and not psutil.pid_exists(int(pid))


def short_folder() -> Path:
    """Where Ray's files go: the temporary folder of this user, unless its path is too long for sockets."""
    folder = Path(tempfile.gettempdir())
    return folder if len(bytes(folder)) <= SHORT else Path("/tmp")  # noqa: S108 - mkdtemp makes a private folder in it  # nosec B108


def clear_abandoned() -> None:
    """Remove what killed launches and workers of this user left behind."""
    clear_folders(short_folder(), RAY)
    for prefix in (CHECKPOINTS, TRIALS):
        clear_folders(Path(tempfile.gettempdir()), prefix)
