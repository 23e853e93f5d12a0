"""Notices that the folder of a running sweep was deleted, moved or replaced: what is written then is lost."""

import os
import shlex
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestrator.errors import StoreError
from orchestrator.files.regular_files import entry_of
from orchestrator.identity import SweepFolder

LOOK_S = 1.0
"""Least time between two looks."""


class FolderGone(StoreError):
    """The folder of a sweep is not where it was."""


class FolderWatch:
    """Holds on to the folder that was there at first, and compares."""

    def __init__(self, folder: SweepFolder) -> None:
        self._root = folder.root.resolve()
        # Held open, so that no new folder can get its number.
        self._handle = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        self._identity = entry_of(self._root)
        self._looked_at = time.monotonic()

    def check(self, *, at_once: bool = False) -> None:
        """Raises FolderGone with what to do; called often, looks once in `LOOK_S` unless `at_once`."""
        now = time.monotonic()
        if not at_once and now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        found = entry_of(self._root)
        if found != self._identity:
            raise FolderGone(self._reason(replaced=found is not None))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self._handle)

    def _reason(self, *, replaced: bool) -> str:
        root = shlex.quote(str(self._root))
        resume = f"`haltsweep resume {root}`"
        moved = self._moved_to()
        if moved is not None:
            what = f"it was moved to {moved}"
            remedy = f"move it back, then {resume}; all that was recorded before is in it"
        else:
            what = "it was replaced by another" if replaced else "it was deleted"
            remedy = f"restore it from a backup, then {resume}, or launch the sweep again"
        first = f"; what is at {root} now must be moved away first" if replaced else ""
        return (
            f"the folder of a sweep must stay where it is while the sweep runs, and {what} ({root}): the "
            f"sweep was stopped; {remedy}{first}"
        )

    def _moved_to(self) -> Path | None:
        """Where the folder is now, as far as the system tells."""
        with suppress(OSError):
            place = Path(f"/proc/self/fd/{self._handle}").readlink()
            if place != self._root and entry_of(place) == self._identity:
                return place
        return None
