"""Clears away what killed processes left half-made, and nothing else: never through a link, never another's.

Whatever stands in the way is left alone and stops nobody: to clear is a courtesy, not a condition.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil


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
