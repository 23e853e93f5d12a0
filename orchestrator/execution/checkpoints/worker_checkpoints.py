"""Write and read checkpoints of one trial on disk; each is complete or absent, and checked before use.

    <folder>/step-000001000/state/           files written by the workload
    <folder>/step-000001000/checkpoint.json  measurement of that step, digests of all files and of itself

A checkpoint is written to a temporary folder, flushed to the disk and then renamed.
"""

import hashlib
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from orchestrator.files.file_digests import seal_json, unseal_json
from orchestrator.files.json_values import from_json_values
from orchestrator.files.regular_files import read_regular
from orchestrator.identity import checkpoint_name, checkpoint_step
from trainables.atomic import flush as to_disk
from trainables.protocol import Measurement

NUM_RETAINED = 2
"""Number of newest checkpoints to retain; the second one is used if the newest is damaged."""
Save = Callable[[Path], None]
"""Function that writes the state of a workload into a folder."""
UNFINISHED = ".writing-"
MANIFEST = "checkpoint.json"
STATE = "state"


class CheckpointDamaged(Exception):
    """Raised if the files of a checkpoint differ from the written ones."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One complete checkpoint of a trial."""

    folder: Path
    step: int

    @property
    def state(self) -> Path:
        """Folder with the files for `Workload.restore`."""
        return self.folder / STATE

    def measurement(self) -> Measurement:
        """Check every file and return the measurement of this step. Raise `CheckpointDamaged`."""
        try:
            manifest = unseal_json(read_regular(self.folder / MANIFEST))
            measurement = from_json_values(Measurement, manifest["measurement"])
            changed_files = {name for name, _ in _digests(self.state).items() ^ manifest["files"].items()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointDamaged(f"{self.folder / MANIFEST} must be readable, got {error!r}") from error
        if changed_files:
            raise CheckpointDamaged(f"{self.folder} has changed files: {', '.join(sorted(changed_files))}")
        return measurement


def list_checkpoints(folder: Path) -> list[Checkpoint]:
    """Return complete checkpoints, newest first, without checking their files."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    steps = sorted((step for name in names if (step := checkpoint_step(name)) is not None), reverse=True)
    return [Checkpoint(folder / checkpoint_name(step), step) for step in steps]


def write(trial: Path, measurement: Measurement, save: Save, *, flush: bool = True, **_: float) -> Checkpoint:
    """Write a checkpoint, then delete all older ones except the newest `NUM_RETAINED` - 1.

    An error leaves the older checkpoints unchanged.

    Args:
        trial: Folder of the checkpoints of the trial.
        measurement: The measurement of this step.
        save: Function that writes the state into a folder.
        flush: Whether the checkpoint must survive a failure of the machine. If False, a lost write is
            detected by its digests.
        **_: Options of other stores.

    Returns:
        The new checkpoint.
    """
    trial.mkdir(parents=True, exist_ok=True)
    # An earlier worker that was declared dead may still write, so each temporary folder has a unique name.
    unfinished = trial / f"{UNFINISHED}{uuid.uuid4().hex}"
    try:
        (unfinished / STATE).mkdir(parents=True)
        save(unfinished / STATE)
        # Metrics that are NaN or infinite become strings, since JSON has only finite numbers.
        metrics = {name: num if isfinite(num) else str(num) for name, num in measurement.metrics.items()}
        values = {"step": measurement.step, "seconds": measurement.seconds, "metrics": metrics}
        values |= {"examples": [*measurement.examples]} if measurement.examples else {}
        manifest = {"measurement": values, "files": _digests(unfinished / STATE)}
        (unfinished / MANIFEST).write_text(seal_json(manifest), encoding="utf-8")
        if flush:
            for path in (*unfinished.rglob("*"), unfinished):
                if not path.is_symlink():  # its target may be outside the checkpoint or missing
                    to_disk(path)
        checkpoint = Checkpoint(trial / checkpoint_name(measurement.step), measurement.step)
        shutil.rmtree(checkpoint.folder, ignore_errors=True)
        unfinished.rename(checkpoint.folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    if flush:
        to_disk(trial)
    for old in list_checkpoints(trial)[NUM_RETAINED:]:
        shutil.rmtree(old.folder, ignore_errors=True)
    return checkpoint


def clear_unfinished(folder: Path) -> None:
    """Delete incomplete checkpoints that killed workers left."""
    for path in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(path, ignore_errors=True)


def _digests(state: Path) -> dict[str, str]:
    """Return the digest of each file by its relative path. Raise `OSError` for an unreadable file."""
    digests = {}
    for path in sorted(file for file in state.rglob("*") if file.is_file()):
        with path.open("rb") as file:
            digests[path.relative_to(state).as_posix()] = hashlib.file_digest(file, "blake2b").hexdigest()
    return digests
