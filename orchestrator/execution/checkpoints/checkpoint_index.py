"""Where the checkpoints of a sweep are, for the recorder: it names and deletes them, and writes none."""

import queue
import shutil
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from orchestrator.execution.checkpoints.checkpoint_stores import Elsewhere
from orchestrator.identity import SweepFolder, checkpoint_name


class Checkpoints(Protocol):
    """Where the checkpoints of trials are."""

    def place(self, trial_id: str, step: int) -> str:
        """What the ledger says of the place of a checkpoint."""

    def discard(self, trial_ids: Iterable[str]) -> None:
        """Delete all checkpoints of these trials. Never raises: what stays is deleted another time."""


@dataclass(frozen=True, slots=True)
class InSweepFolder:
    """Checkpoints in the folder of the sweep."""

    folder: SweepFolder

    def place(self, trial_id: str, step: int) -> str:
        """Relative to the folder."""
        path = self.folder.checkpoint(trial_id) / checkpoint_name(step)
        return str(path.relative_to(self.folder.root))

    def discard(self, trial_ids: Iterable[str]) -> None:
        """At once."""
        for trial_id in trial_ids:
            shutil.rmtree(self.folder.checkpoint(trial_id), ignore_errors=True)


class InStore:
    """Checkpoints in a store elsewhere: deleted in the background, for a store may be slow."""

    def __init__(self, uri: str) -> None:
        self._store = Elsewhere(uri)
        self._wanted: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._idle = threading.Condition()
        self._pending = 0
        threading.Thread(target=self._work, name="checkpoints", daemon=True).start()

    def place(self, trial_id: str, step: int) -> str:
        """URI of a checkpoint."""
        return self._store.place(trial_id, step)

    def discard(self, trial_ids: Iterable[str]) -> None:
        """Delete all checkpoints of these trials, some time later."""
        wanted = list(trial_ids)
        if wanted:
            with self._idle:
                self._pending += 1
            self._wanted.put(wanted)

    def close(self, wait_s: float = 30.0) -> None:
        """Wait for what is left; the next session deletes what this one did not come to."""
        with self._idle:
            self._idle.wait_for(lambda: not self._pending, wait_s)

    def _work(self) -> None:
        while True:
            self._store.discard(self._wanted.get())
            with self._idle:
                self._pending -= 1
                self._idle.notify_all()
