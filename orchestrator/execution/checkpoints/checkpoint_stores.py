"""Stores of checkpoints: the folder of the sweep, or any file system supported by pyarrow or fsspec.

Operations on an external store are retried for a limited time after any exception, since libraries of stores
have their own exception classes. Only the errors in `PERMANENT_ERRORS` are not retried. The ledger contains
the URI of a store but no credentials, which come from the environment. Layout of a store:

    <uri>/<trial id>/step-000001000/state-<unique>/   files written by the workload
    <uri>/<trial id>/step-000001000/checkpoint.json   written last: name of that folder, the local manifest

Checkpoints are written and checked on the local disk. An earlier attempt that was declared dead may still
write, so every copy of a state has a unique name.
"""

import json
import logging
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from orchestrator.errors import StoreError
from orchestrator.execution.checkpoints import worker_checkpoints as local
from orchestrator.execution.checkpoints.checkpoint_uris import child_uri, file_system
from orchestrator.execution.checkpoints.worker_checkpoints import (
    MANIFEST,
    NUM_RETAINED,
    STATE,
    Checkpoint,
    Save,
)
from orchestrator.files.abandoned_folders import CHECKPOINTS, clear_abandoned
from orchestrator.files.file_digests import unseal_json
from orchestrator.files.json_values import parse_json
from orchestrator.files.redact import redact, redact_url
from orchestrator.identity import checkpoint_name, checkpoint_step
from trainables.process_identity import process_label
from trainables.protocol import Measurement

_log = logging.getLogger(__name__)
_Found = TypeVar("_Found")
PATIENCE_S = 60.0
"""Seconds of retries for reading a trial's newest checkpoint or writing the last one of a confirm trial."""
COMMAND_PATIENCE_S = 10.0
"""Seconds of retries for deletions and for commands that a user waits for."""
PERMANENT_ERRORS = (
    FileNotFoundError,
    ImportError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    ValueError,
)
"""Errors that are not retried, since a retry cannot resolve them."""
RETRYING = Retrying(
    retry=retry_if_exception(
        lambda error: isinstance(error, Exception) and not isinstance(error, PERMANENT_ERRORS)
    ),
    wait=wait_fixed(1.0),
    reraise=True,
)
MAX_UNLISTED_TRIALS = 8
"""Maximum number of trials whose checkpoints are deleted without listing the store first."""


class StoreUnreachable(StoreError):
    """Raised if the store of checkpoints does not respond within the time limit for retries."""


class FolderStore:
    """Checkpoints in the folder of the sweep, which all workers share."""

    clear_unfinished = staticmethod(local.clear_unfinished)
    complete = staticmethod(local.list_checkpoints)
    write = staticmethod(local.write)


class ExternalStore:
    """Checkpoints on the file system of a URI. Only the name of a trial's folder is used.

    Args:
        uri: URI of the folder for the sweep's checkpoints. The first operation connects to the file system.
        patience_s: Seconds for which a failing operation is retried.
    """

    def __init__(self, uri: str, patience_s: float = PATIENCE_S) -> None:
        self.uri = uri
        self._patience_s = patience_s

    def clear_unfinished(self, trial: Path) -> None:  # noqa: ARG002 - as `FolderStore` has it
        """Delete local copies of checkpoints; `write` deletes incomplete checkpoints in the store."""
        if (scratch := self.__dict__.pop("_scratch", None)) is not None:
            shutil.rmtree(scratch, ignore_errors=True)

    def complete(self, trial: Path) -> Iterator[Checkpoint]:
        """Yield complete checkpoints, newest first, downloading each on demand. Raise `StoreUnreachable`."""
        for step, is_complete in sorted(self._steps(trial.name).items(), reverse=True):
            try:
                if is_complete:
                    yield self._fetch(trial.name, step)
            except (ValueError, KeyError, TypeError, FileNotFoundError) as error:
                _log.warning("checkpoint %s is skipped: %r", self.place(trial.name, step), error)

    def write(
        self, trial: Path, measurement: Measurement, save: Save, *, flush: bool = True, patience_s: float = 0
    ) -> Checkpoint | None:
        """Write a local checkpoint and upload it, the manifest last; keep the newest `NUM_RETAINED` ones.

        Args:
            trial: Folder of the trial in the sweep.
            measurement: The measurement of this step.
            save: Function that writes the state into a folder.
            flush: Whether the checkpoint must survive a failure of the machine. If False, nothing is written.
            patience_s: Seconds of retries.

        Returns:
            The checkpoint, whose local files are deleted; None if none was written.

        Raises:
            StoreUnreachable: The store does not respond.
        """
        if not flush:
            return None
        checkpoint = local.write(self._scratch / trial.name, measurement, save, flush=False)
        target, state = f"{trial.name}/{checkpoint.folder.name}", f"{STATE}-{uuid.uuid4().hex}"
        try:
            for file in sorted(path for path in checkpoint.state.rglob("*") if path.is_file()):
                name = file.relative_to(checkpoint.state).as_posix()
                self._retry(partial(self.put, f"{target}/{state}/{name}", file), patience_s)
            manifest = checkpoint.folder / MANIFEST
            pointer = {"state": state, "manifest": manifest.read_text(encoding="utf-8")}
            manifest.write_text(json.dumps(pointer), encoding="utf-8")
            self._retry(partial(self.put, f"{target}/{MANIFEST}", manifest), patience_s)
        finally:
            shutil.rmtree(checkpoint.folder, ignore_errors=True)
        try:
            steps = self._steps(trial.name, patience_s=0)
            for step in sorted(steps, key=lambda step: (steps[step], step), reverse=True)[NUM_RETAINED:]:
                self.delete(f"{trial.name}/{checkpoint_name(step)}", patience_s=0)
        except StoreUnreachable as error:
            _log.warning("older checkpoints stay: %s", error)
        return checkpoint

    def place(self, trial_id: str, step: int) -> str:
        """Return the URI of a checkpoint."""
        return child_uri(self.uri, trial_id, checkpoint_name(step))

    def discard(self, trial_ids: Iterable[str]) -> None:
        """Delete all checkpoints of these trials, and log a warning if a deletion fails."""
        try:
            discarded_ids = set(trial_ids)
            if len(discarded_ids) > MAX_UNLISTED_TRIALS:
                discarded_ids &= self.names("", COMMAND_PATIENCE_S)
            for trial_id in discarded_ids:
                self.delete(trial_id, COMMAND_PATIENCE_S)
        except StoreUnreachable as error:
            _log.warning("checkpoints in %s could not be deleted: %s", self.uri, error)

    def delete(self, folder: str, patience_s: float = COMMAND_PATIENCE_S) -> None:
        """Delete a folder, which may be missing; "" is the root. Raise `StoreUnreachable`."""

        def delete_all() -> None:
            files, root = self._connection
            with suppress(FileNotFoundError):
                files.rm(f"{root}/{folder}".rstrip("/"), recursive=True)
            if self._list(folder):  # `rm` of some file systems skips paths that it cannot list
                raise OSError(f"{folder} could not be deleted as a whole")

        self._retry(delete_all, patience_s)

    def probe(self) -> None:
        """Write, read and delete a checkpoint. Raise `StoreError` with the reason if one of these fails."""
        trial = Path(f".probe-{uuid.uuid4().hex}")
        try:
            self.write(trial, Measurement(0, 0.0, {}), lambda _: None, patience_s=COMMAND_PATIENCE_S)
            self._fetch(trial.name, 0).measurement()
            self.delete(trial.name)
        except (StoreUnreachable, FileNotFoundError) as error:
            cause = error.__cause__ or error
            raise StoreError(
                "--checkpoints must be a location that allows writing, reading and deleting, got "
                f"{self.uri}: {redact(str(cause) or type(cause).__name__)}; check bucket, region and "
                "credentials, which come from the environment"
            ) from error

    def names(self, folder: str, patience_s: float | None = None) -> set[str]:
        """Return the names in a folder, which may be missing. Raise `StoreUnreachable`.

        Args:
            folder: Folder in the store; empty for the root.
            patience_s: Seconds of retries.
        """
        return self._retry(lambda: self._list(folder), patience_s)

    def put(self, name: str, source: Path) -> None:
        """Upload the file `source`. Exceptions of the file system are not converted."""
        files, root = self._connection
        path = f"{root}/{name}"
        if files.protocol not in ("abfs", "gcs", "s3"):  # in these a folder is only a prefix of names
            files.makedirs(path.rpartition("/")[0], exist_ok=True)
        with source.open("rb") as file, files.open(path, "wb") as stream:
            shutil.copyfileobj(file, stream, length=1 << 20)

    @cached_property
    def _connection(self) -> tuple[Any, str]:
        return file_system(self.uri)

    @cached_property
    def _scratch(self) -> Path:
        clear_abandoned()
        folder = Path(tempfile.mkdtemp(prefix=f"{CHECKPOINTS}{process_label()}-"))
        weakref.finalize(
            self, shutil.rmtree, folder, ignore_errors=True
        )  # a process may end without clearing
        return folder

    def _steps(self, trial_id: str, patience_s: float | None = None) -> dict[int, bool]:
        """Return for each step of a trial whether its checkpoint is complete."""
        return {
            step: MANIFEST in self.names(f"{trial_id}/{name}", patience_s)
            for name in self.names(trial_id, patience_s)
            if (step := checkpoint_step(name)) is not None
        }

    def _fetch(self, trial_id: str, step: int) -> Checkpoint:
        files, root = self._connection
        source = f"{root}/{trial_id}/{checkpoint_name(step)}"
        checkpoint = Checkpoint(self._scratch / trial_id / checkpoint_name(step), step)
        manifest = parse_json(self._retry(lambda: files.cat_file(f"{source}/{MANIFEST}")))
        shutil.rmtree(checkpoint.folder, ignore_errors=True)
        checkpoint.state.mkdir(parents=True)
        for name in unseal_json(manifest["manifest"].encode())["files"]:
            path = checkpoint.state / name
            if not path.resolve().is_relative_to(checkpoint.state.resolve()):
                raise ValueError(f"files of a checkpoint must be below its folder, got {name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._retry(partial(files.get_file, f"{source}/{manifest['state']}/{name}", str(path)))
        (checkpoint.folder / MANIFEST).write_text(manifest["manifest"], encoding="utf-8")
        return checkpoint

    def _list(self, folder: str) -> set[str]:
        # `find`, `walk`, `isdir` and `exists` of fsspec return an empty result on failure.
        files, root = self._connection
        files.invalidate_cache()
        with suppress(FileNotFoundError):
            paths = files.ls(f"{root}/{folder}".rstrip("/"), detail=False)
            return {path.rstrip("/").rpartition("/")[2] for path in paths}
        return set()

    def _retry(self, action: Callable[[], _Found], patience_s: float | None = None) -> _Found:
        """Return the result of `action`, which is retried for `patience_s` seconds while it raises.

        Raises:
            FileNotFoundError: The store responds that the file does not exist.
            StoreUnreachable: The last error is another one of `PERMANENT_ERRORS`, or the time is over.
        """
        limit_s = self._patience_s if patience_s is None else patience_s
        try:
            return RETRYING.copy(stop=stop_after_delay(limit_s))(action)
        except FileNotFoundError:
            raise
        except Exception as error:  # libraries of stores have their own exception classes
            reason = redact(str(error) or type(error).__name__)
            raise StoreUnreachable(
                f"the store of checkpoints {redact_url(self.uri)} does not answer: {reason}; "
                "try again later, for a sweep with `haltsweep resume`"
            ) from error


CheckpointStore = FolderStore | ExternalStore
"""Store that reads and writes checkpoints. A trial is identified by its folder in the sweep."""


def make_store(uri: str | None, patience_s: float = PATIENCE_S) -> CheckpointStore:
    """Return the store at `uri`, or the folder of the sweep if `uri` is None.

    Args:
        uri: URI of an external store.
        patience_s: Seconds of retries of an external store.
    """
    return FolderStore() if uri is None else ExternalStore(uri, patience_s)
