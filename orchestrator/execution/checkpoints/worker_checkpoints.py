"""Checkpoints of one trial on disk: complete or absent, newest first, checked before they are trusted.

    <folder>/step-000001000/state/           what the workload saved
    <folder>/step-000001000/checkpoint.json  the measurement of that step, the digest of every file, its own

A checkpoint is written under another name, flushed to the disk and then renamed.
"""

import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from orchestrator.files.abandoned import own_folder
from orchestrator.files.file_digests import sealed, unsealed
from orchestrator.files.regular_files import read_ordinary
from orchestrator.identity import checkpoint_name, checkpoint_step
from trainables.atomic import flush as to_disk
from trainables.protocol import Measurement

KEPT = 2
"""A second one, for the case that the newest turns out to be damaged."""
FLUSHES = 8
"""Files that are flushed at the same time: file systems write them to the disk together."""
UNFINISHED = ".writing-"
MANIFEST = "checkpoint.json"
STATE = "state"


class Damaged(Exception):
    """A checkpoint is not what was written."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One complete checkpoint."""

    folder: Path
    step: int

    @property
    def state(self) -> Path:
        """What to give to `Workload.restore`."""
        return self.folder / STATE

    def measurement(self) -> Measurement:
        """The measurement of its step, after checking every file. Raises `Damaged`."""
        try:
            manifest = unsealed(read_ordinary(self.folder / MANIFEST))
            measurement = _from_json(manifest["measurement"])
            files = manifest["files"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Damaged(f"{self.folder / MANIFEST} must be readable, got {error!r}") from error
        if measurement.step != self.step:
            raise Damaged(f"{self.folder} must hold step {self.step}, got {measurement.step}")
        try:
            found = _digests(self.state)
        except OSError as error:
            raise Damaged(f"files of {self.folder} must be readable, got {error!r}") from error
        if found != files:
            names = ", ".join(
                sorted(name for name in files.keys() | found if files.get(name) != found.get(name))
            )
            raise Damaged(f"files of {self.folder} must be as written, but these differ: {names}")
        return measurement


def complete(folder: Path) -> list[Checkpoint]:
    """Complete checkpoints, newest first."""
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    steps = sorted((step for name in names if (step := checkpoint_step(name)) is not None), reverse=True)
    return [Checkpoint(folder / checkpoint_name(step), step) for step in steps]


def write(
    folder: Path, measurement: Measurement, save: Callable[[Path], None], *, flush: bool = True
) -> Checkpoint:
    """A new checkpoint of the state that `save` writes; older ones but `KEPT` - 1 are deleted afterwards.

    Whatever goes wrong leaves the older ones as they were. Without `flush` it survives the death of every
    process, but perhaps not that of the machine; the digests tell.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # A worker given up for dead may still write here: each has a name of its own.
    unfinished = folder / f"{UNFINISHED}{uuid.uuid4().hex}"
    try:
        (unfinished / STATE).mkdir(parents=True)
        save(unfinished / STATE)
        manifest = {
            "measurement": {
                "step": measurement.step,
                "seconds": measurement.seconds,
                "metrics": {name: _to_json(value) for name, value in measurement.metrics.items()},
                **({"examples": [*measurement.examples]} if measurement.examples else {}),
            },
            "files": _digests(unfinished / STATE),
        }
        (unfinished / MANIFEST).write_text(sealed(manifest), encoding="utf-8")
        if flush:
            # Links lead elsewhere, or nowhere from here.
            written = [path for path in (*unfinished.rglob("*"), unfinished) if not path.is_symlink()]
            with ThreadPoolExecutor(FLUSHES) as pool:
                for _ in pool.map(to_disk, written):
                    pass
        made = Checkpoint(folder / checkpoint_name(measurement.step), measurement.step)
        shutil.rmtree(made.folder, ignore_errors=True)
        unfinished.rename(made.folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    if flush:
        to_disk(folder)
    for old in complete(folder)[KEPT:]:
        shutil.rmtree(old.folder, ignore_errors=True)
    return made


def _to_json(value: float) -> float | str:
    """Return a metric as a JSON value: NaN and infinities become texts."""
    return value if isfinite(value) else str(value)


def _from_json(values: Mapping[str, Any]) -> Measurement:
    metrics = {name: float(value) for name, value in values["metrics"].items()}
    return Measurement(**{**values, "metrics": metrics})


def clear_unfinished(folder: Path) -> None:
    """Delete what killed workers left half-written."""
    for path in folder.glob(f"{UNFINISHED}*"):
        if own_folder(path):
            shutil.rmtree(path, ignore_errors=True)


def _digests(state: Path) -> dict[str, str]:
    """Of every file. Raises OSError, of a folder that may not be looked into too: its files may be there."""

    def refuse(error: OSError) -> None:
        if isinstance(error, PermissionError):
            raise error

    walked = os.walk(state, onerror=refuse)
    paths = [Path(folder, name) for folder, _, names in walked for name in names]
    found = {}
    for path in sorted(each for each in paths if each.is_file()):
        with path.open("rb") as file:
            found[path.relative_to(state).as_posix()] = hashlib.file_digest(file, "blake2b").hexdigest()
    return found
