"""The working directory of a trial, which its code may change; that of the process around it stays."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class WorkingDirectory:
    """Of one trial after the other. Paths of a sweep may be relative to where it was started."""

    def __init__(self) -> None:
        self._trials: Path | None = None
        """Where the code of the trial went; None while it is where the process is."""

    def begin(self) -> None:
        """Another trial: it begins where the process is."""
        self._trials = None

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Within, the trial's own directory; after, that of before. One that is gone is not missed."""
        outside = _current()
        if self._trials is not None:
            _go(self._trials)
        try:
            yield
        finally:
            now = _current()
            self._trials = None if now == outside else now
            if now != outside and outside is not None:
                _go(outside)


def _current() -> Path | None:
    """None if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def _go(folder: Path) -> None:
    with suppress(OSError):
        os.chdir(folder)
