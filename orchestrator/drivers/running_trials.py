"""Which trials this process is running, noted in the sweep's folder: a dead process cannot tell any more.

A note that its process did not take back names a trial that may have ended the process, by a fault of memory
or by using all of it. Nothing is flushed: when the whole machine goes down, no trial is to blame.
"""

import shutil
from contextlib import suppress
from pathlib import Path


class RunningTrials:
    """The notes of one sweep; whoever opens it gets those that the last session left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._excused = False

    def left(self) -> set[str]:
        """Ids of trials that a process was running when it died; forgotten afterwards."""
        found = {note.name for note in self._folder.iterdir()} if self._folder.is_dir() else set()
        self._clear()
        return found

    def began(self, trial_id: str) -> None:
        """A worker runs the trial. A disk that takes no note is no reason to stop."""
        if not self._excused:
            with suppress(OSError):
                self._folder.mkdir(exist_ok=True)
                (self._folder / trial_id).touch()

    def ended(self, trial_id: str) -> None:
        """No worker runs the trial any more."""
        with suppress(OSError):
            (self._folder / trial_id).unlink(missing_ok=True)

    def excuse(self) -> None:
        """However this process ends from now on, no trial is to blame. Safe to call from any thread."""
        self._excused = True
        self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
