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

from trainables.process_identity import ProcessState, state_of_label
from trainables.protocol import TRIALS

RAY = "hs-ray-"
"""Files of a Ray of this machine's own and of Tune; the label of a process follows, as in all of these."""
CHECKPOINTS = "haltsweep-checkpoints-"
"""Copies of checkpoints that are kept elsewhere."""
SILENCE_S = 7 * 24 * 3600.0
"""What belongs to a process that nobody can look up is removed after so long without a sign of life."""
SHORT = 9
"""Ray's sockets are up to 98 bytes below it, and the path of a socket may have 107."""


def clear_folders(parent: Path, prefix: str) -> None:
    """Remove folders of this user in `parent` called `<prefix><process label>-...` whose process is dead.

    If nobody can look the process up, since it ran in another container or on another machine, its folder is
    removed once it `is_silent`.
    """
    for path in _named(parent, prefix):
        state = state_of_label(path.name.removeprefix(prefix))
        if state in {None, ProcessState.ALIVE} or not own_folder(path):
            continue
        if state is ProcessState.DEAD or is_silent(path):
            shutil.rmtree(path, ignore_errors=True)


def is_silent(folder: Path) -> bool:
    """Return whether nothing in `folder` has changed for `SILENCE_S`.

    A change of any file or folder is a sign of life; processes that may write nothing for days touch the
    folder. The age is measured by the clock of the file system, since clocks of machines differ. A folder
    that cannot be read is not silent.
    """
    try:
        with tempfile.TemporaryFile(dir=folder.parent) as fresh:
            limit = os.fstat(fresh.fileno()).st_mtime - SILENCE_S
        return all(path.lstat().st_mtime < limit for path in _everything_in(folder))
    except OSError:
        return False


def _everything_in(folder: Path) -> Iterator[Path]:
    """Yield `folder` and all that is below it, and follow no link. Raises OSError."""
    yield folder
    for place, folders, files in os.walk(folder, onerror=_raise):
        yield from (Path(place, name) for name in (*folders, *files))


def _raise(error: OSError) -> None:
    raise error


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


def short_folder() -> Path:
    """Where Ray's files go: the temporary folder of this user, unless its path is too long for sockets."""
    folder = Path(tempfile.gettempdir())
    return folder if len(bytes(folder)) <= SHORT else Path("/tmp")  # noqa: S108 - mkdtemp makes a private folder in it  # nosec B108


def clear_abandoned() -> None:
    """Remove what killed launches and workers of this user left behind."""
    clear_folders(short_folder(), RAY)
    for prefix in (CHECKPOINTS, TRIALS):
        clear_folders(Path(tempfile.gettempdir()), prefix)
