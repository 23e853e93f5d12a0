"""Name and delete the checkpoints of a sweep for the recorder, which neither reads nor writes checkpoints."""

import queue
import shutil
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from orchestrator.execution.checkpoints.checkpoint_stores import Elsewhere
from orchestrator.identity import SweepFolder, checkpoint_name


class Checkpoints(Protocol):
    """The checkpoints of all trials of a sweep."""

    def place(self, trial_id: str, step: int) -> str:
        """Return the location of a checkpoint, as recorded in the ledger."""

    def discard(self, trial_ids: Iterable[str]) -> None:
        """Delete all checkpoints of these trials. A failed deletion raises no error and is repeated later."""


@dataclass(frozen=True, slots=True)
class InSweepFolder:
    """Checkpoints in the folder of the sweep."""

    folder: SweepFolder

    def place(self, trial_id: str, step: int) -> str:
        """Return the path of a checkpoint relative to the folder of the sweep."""
        path = self.folder.checkpoint(trial_id) / checkpoint_name(step)
        return str(path.relative_to(self.folder.root))

    def discard(self, trial_ids: Iterable[str]) -> None:
        """Delete all checkpoints of these trials at once."""
        for trial_id in trial_ids:
            shutil.rmtree(self.folder.checkpoint(trial_id), ignore_errors=True)


class InStore:
    """Checkpoints in an external store, deleted by a background thread because a store may be slow."""

    def __init__(self, uri: str) -> None:
        """Start the thread that deletes checkpoints."""
        self._store = Elsewhere(uri)
        self._wanted: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._idle = threading.Condition()
        self._pending = 0
        threading.Thread(target=self._work, name="checkpoints", daemon=True).start()

    def place(self, trial_id: str, step: int) -> str:
        """Return the URI of a checkpoint."""
        return self._store.place(trial_id, step)

    def discard(self, trial_ids: Iterable[str]) -> None:
        """Queue the deletion of all checkpoints of these trials."""
        wanted = list(trial_ids)
        if wanted:
            with self._idle:
                self._pending += 1
            self._wanted.put(wanted)

    def close(self, wait_s: float = 30.0) -> None:
        """Wait up to `wait_s` seconds for queued deletions; the next session repeats unfinished ones."""
        with self._idle:
            self._idle.wait_for(lambda: not self._pending, wait_s)

    def _work(self) -> None:
        while True:
            self._store.discard(self._wanted.get())
            with self._idle:
                self._pending -= 1
                self._idle.notify_all()
