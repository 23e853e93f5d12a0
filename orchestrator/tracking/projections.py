"""Digests of the Parquet files, beside them: a reader is never given what is not as it was written."""

import time
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.files.abandoned import own_file
from orchestrator.files.file_digests import digest_of, sealed, unsealed
from orchestrator.files.regular_files import read_ordinary
from orchestrator.identity import SweepFolder
from trainables.atomic import write_atomically

LIST = "projections.json"
TRIES = 20
TRY_S = 0.1
"""A file and its digest are replaced one after the other: who meets them in between looks again."""


class Projections:
    """The list of one sweep's folder, for its one writer."""

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder
        self._digests = read_digests(folder)
        for place in (folder.root, folder.measurements):
            for left in (*place.glob(".*.parquet.*"), *place.glob(f".{LIST}.*")):
                if own_file(left):  # of a writer that was killed: there is one at a time
                    left.unlink(missing_ok=True)

    def holds(self, file: Path, content: bytes) -> bool:
        """Whether the file is there with this content, and in the list."""
        wanted = digest_of(content)
        try:
            there = digest_of(read_ordinary(file))
        except OSError:  # `put` tells what is in the way
            return False
        return there == wanted == self._digests.get(self._name(file))

    def put(self, file: Path, content: bytes) -> None:
        """Replace the file. Raises OSError."""
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content)
        self._digests[self._name(file)] = digest_of(content)
        self._write()

    def drop_others(self, kept: set[Path]) -> int:
        """Delete all measurements files but those `kept`; how many."""
        others = [
            file
            for file in self._folder.measurements.glob("*.parquet")
            if file not in kept and own_file(file)
        ]
        for file in others:
            file.unlink()
        names = {self._name(file) for file in kept}
        if extra := self._digests.keys() - names:
            for name in extra:
                del self._digests[name]
            self._write()
        return len(others)

    def _name(self, file: Path) -> str:
        return file.relative_to(self._folder.root).as_posix()

    def _write(self) -> None:
        write_atomically(self._folder.root / LIST, sealed({"files": self._digests}))


def read_digests(folder: SweepFolder) -> dict[str, str]:
    """Digests by name relative to the folder; none where there is no list, or one that is damaged."""
    try:
        return dict(unsealed(read_ordinary(folder.root / LIST))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def read_sound(folder: SweepFolder, file: Path) -> bytes:
    """The content of a projection. Raises OSError, StoreError if it is not what was written."""
    name = file.relative_to(folder.root).as_posix()
    for left in reversed(range(TRIES)):
        content = read_ordinary(file)
        if read_digests(folder).get(name) == digest_of(content):
            return content
        if left:
            time.sleep(TRY_S)
    raise StoreError(
        f"{str(file)!r} must be as haltsweep wrote it, and was changed or damaged since; make it again with "
        "`haltsweep sync`"
    )
