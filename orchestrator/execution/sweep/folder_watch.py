"""Detect that the folder of a running sweep was deleted, moved or replaced, since later writes are lost."""

import os
import shlex
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestrator.errors import StoreError
from orchestrator.files.regular_files import file_identity
from orchestrator.identity import SweepFolder

CHECK_INTERVAL_S = 1.0
"""Minimum seconds between two checks."""


class FolderLost(StoreError):
    """Raised if the folder of a sweep is no longer at its path."""


class FolderWatch:
    """Watch that compares the folder at a path with the original folder."""

    def __init__(self, folder: SweepFolder) -> None:
        self._root = folder.root.resolve()
        # Kept open, so that no new folder can get the same inode number.
        self._handle = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        self._identity = file_identity(self._root)
        self._checked_at = time.monotonic()

    def check(self, *, at_once: bool = False) -> None:
        """Raise `FolderLost` with a remedy, checking once per `CHECK_INTERVAL_S` seconds unless `at_once`."""
        now = time.monotonic()
        if not at_once and now - self._checked_at < CHECK_INTERVAL_S:
            return
        self._checked_at = now
        identity = file_identity(self._root)
        if identity != self._identity:
            raise FolderLost(self._loss_message(replaced=identity is not None))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self._handle)

    def _loss_message(self, *, replaced: bool) -> str:
        root = shlex.quote(str(self._root))
        resume = f"`haltsweep resume {root}`"
        current_path = self._current_path()
        if current_path is not None:
            event_text = f"it was moved to {current_path}"
            remedy = f"move it back, then {resume}; it contains everything recorded so far"
        else:
            event_text = "it was replaced by another" if replaced else "it was deleted"
            remedy = f"restore it from a backup, then {resume}, or launch the sweep again"
        condition = f"; first move the new folder at {root} away" if replaced else ""
        return (
            f"the folder of a sweep must stay where it is while the sweep runs, and {event_text} ({root}): "
            f"the sweep was stopped; {remedy}{condition}"
        )

    def _current_path(self) -> Path | None:
        """Return the current path of a moved folder; None if the system does not provide it."""
        with suppress(OSError):
            place = Path(f"/proc/self/fd/{self._handle}").readlink()
            if place != self._root and file_identity(place) == self._identity:
                return place
        return None
