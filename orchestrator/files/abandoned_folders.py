"""Remove temporary folders that killed processes of this user left behind.

Links are never followed, and files of other users are never removed. Errors are ignored, since the removal is
optional. The folders are identified by their names.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from trainables.process_identity import ProcessState, state_of_label
from trainables.protocol import TRIALS

RAY = "hs-ray-"
"""Prefix of folders with the files of a local Ray and of Ray Tune.

For every prefix in this module, the label of a process follows.
"""
CHECKPOINTS = "haltsweep-checkpoints-"
"""Prefix of folders with copies of checkpoints that are stored elsewhere."""
SILENCE_S = 7 * 24 * 3600.0
"""Seconds without changes after which a folder is removed if its process cannot be checked."""
SHORT = 9
"""Maximum number of bytes of the path of the temporary folder for Ray.

Ray's sockets have up to 98 more bytes, and the path of a socket may have 107.
"""


def clear_folders(parent: Path, prefix: str) -> None:
    """Remove folders of this user in `parent` called `<prefix><process label>-...` of dead processes.

    If the process cannot be checked, because it ran in another container or on another machine, its folder is
    removed once it `is_silent`.
    """
    for path in _list_prefixed(parent, prefix):
        state = state_of_label(path.name.removeprefix(prefix))
        if state in {None, ProcessState.ALIVE} or not is_own_folder(path):
            continue
        if state is ProcessState.DEAD or is_silent(path):
            shutil.rmtree(path, ignore_errors=True)


def is_silent(folder: Path) -> bool:
    """Return whether nothing in `folder` has changed for `SILENCE_S`.

    Processes that may write nothing for days touch their folder. The age is measured by the clock of the file
    system, since clocks of machines differ. A folder that cannot be read is not silent.
    """
    try:
        with tempfile.TemporaryFile(dir=folder.parent) as fresh:
            limit = os.fstat(fresh.fileno()).st_mtime - SILENCE_S
        return all(path.lstat().st_mtime < limit for path in _everything_in(folder))
    except OSError:
        return False


def _everything_in(folder: Path) -> Iterator[Path]:
    """Yield `folder` and everything below it without following links; raise OSError if it cannot be read."""
    yield folder
    for place, folders, files in os.walk(folder, onerror=_raise):
        yield from (Path(place, name) for name in (*folders, *files))


def _raise(error: OSError) -> None:
    raise error


def is_own_folder(path: Path) -> bool:
    """Return whether `path` is a folder of this user; a link to a folder does not count."""
    return _is_own(path, stat.S_ISDIR)


def is_own_file(path: Path) -> bool:
    """Return whether `path` is a regular file of this user; a link, a pipe or a device does not count."""
    return _is_own(path, stat.S_ISREG)


def _is_own(path: Path, is_kind: Callable[[int], bool]) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return is_kind(status.st_mode) and status.st_uid == os.getuid()


def _list_prefixed(parent: Path, prefix: str) -> Iterator[Path]:
    try:
        names = [entry.name for entry in os.scandir(parent)]
    except OSError:
        return
    yield from (parent / name for name in names if name.startswith(prefix))


def short_folder() -> Path:
    """Return the folder for Ray's files: the temporary folder, or /tmp if its path is too long."""
    folder = Path(tempfile.gettempdir())
    return folder if len(bytes(folder)) <= SHORT else Path("/tmp")  # noqa: S108 - mkdtemp makes a private folder in it  # nosec B108


def clear_abandoned() -> None:
    """Remove folders that killed launches and workers of this user left behind."""
    clear_folders(short_folder(), RAY)
    for prefix in (CHECKPOINTS, TRIALS):
        clear_folders(Path(tempfile.gettempdir()), prefix)
