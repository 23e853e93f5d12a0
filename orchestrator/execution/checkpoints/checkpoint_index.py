"""Name and delete the checkpoints of a sweep for the recorder, which neither reads nor writes checkpoints."""

import shutil
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from orchestrator.execution.checkpoints.checkpoint_stores import ExternalStore
from orchestrator.identity import SweepFolder, checkpoint_name


@dataclass(frozen=True, slots=True)
class FolderCheckpoints:
    """Checkpoints in the folder of the sweep."""

    folder: SweepFolder

    def place(self, trial_id: str, step: int) -> str:
        """Return the path of a checkpoint relative to the folder of the sweep, as the ledger records it."""
        return str((self.folder.checkpoint(trial_id) / checkpoint_name(step)).relative_to(self.folder.root))

    def discard(self, trial_ids: Iterable[str]) -> None:
        """Delete all checkpoints of these trials at once, and ignore errors."""
        parent = str(self.folder.checkpoint_folder)
        for trial_id in trial_ids:  # a `Path` of each of 100,000 trials would take memory and time
            shutil.rmtree(f"{parent}/{trial_id}", ignore_errors=True)


class ExternalCheckpoints(ExternalStore):
    """Checkpoints in an external store; a background thread deletes them, because a store may be slow."""

    def __init__(self, uri: str) -> None:
        """Prepare the thread that deletes checkpoints."""
        super().__init__(uri)
        self._deleter = ThreadPoolExecutor(1, "checkpoints")
        self._deletions: list[Future[None]] = []

    def discard(self, trial_ids: Iterable[str]) -> None:
        """Queue the deletion of all checkpoints of these trials; failures are logged."""
        if names := list(trial_ids):
            self._deletions = [self._deleter.submit(super().discard, names)]  # begins after earlier ones

    def close(self, wait_s: float = 30.0) -> None:
        """Wait up to `wait_s` seconds for queued deletions; the next session repeats unfinished ones."""
        wait(self._deletions, wait_s)
        self._deleter.shutdown(wait=False, cancel_futures=True)


Checkpoints = FolderCheckpoints | ExternalCheckpoints
"""The checkpoints of all trials of a sweep."""
