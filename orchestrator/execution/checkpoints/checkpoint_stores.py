"""Stores of checkpoints: the folder of the sweep, or any file system supported by pyarrow or fsspec.

Operations on an external store are retried for a limited time after any exception, since libraries of stores
have their own exception classes. Only the errors in `LASTING` are not retried. The ledger contains the URI of
a store but no credentials, which come from the environment. Layout of a store:

    <uri>/<trial id>/step-000001000/state-<unique>/   files written by the workload
    <uri>/<trial id>/step-000001000/checkpoint.json   written last: name of that folder, the local manifest

Checkpoints are written and checked on the local disk. An earlier attempt that was declared dead may still
write, so every copy of a state has a unique name.
"""

import json
import logging
import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.errors import InputError, StoreError
from orchestrator.execution.checkpoints import worker_checkpoints as local
from orchestrator.execution.checkpoints.checkpoint_uris import child_uri, file_system
from orchestrator.execution.checkpoints.worker_checkpoints import KEPT, MANIFEST, STATE, Checkpoint
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
LASTING = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors that are not retried, since a retry cannot resolve them."""
NO_FOLDERS = frozenset({"abfs", "gcs", "s3"})
"""Protocols of stores without real folders, where a folder is only a prefix of file names."""
FEW = 8
"""Maximum number of trials whose checkpoints are deleted without listing the store first."""


class StoreUnreachable(StoreError):
    """Raised if the store of checkpoints does not respond within the time limit for retries."""


class FolderStore:
    """Checkpoints in the folder of the sweep, which all workers share."""

    def clear_unfinished(self, trial: Path) -> None:
        """Delete incomplete checkpoints that killed workers left on this machine."""
        local.clear_unfinished(trial)

    def complete(self, trial: Path) -> Iterable[Checkpoint]:
        """Return complete checkpoints, newest first, without checking their files."""
        return local.list_checkpoints(trial)

    def write(
        self,
        trial: Path,
        measurement: Measurement,
        save: Callable[[Path], None],
        *,
        flush: bool = True,
        patience_s: float = 0.0,  # noqa: ARG002 - disks are not retried
    ) -> int | None:
        """Write a checkpoint and return its step; for the arguments see `ExternalStore.write`."""
        return local.write(trial, measurement, save, flush=flush).step


class ExternalStore:
    """Checkpoints on the file system of a URI. Only the name of a trial's folder is used.

    Args:
        uri: URI of the folder for the sweep's checkpoints. The first operation connects to the file system.
        patience_s: Seconds for which a failing operation is retried, by default `PATIENCE_S`.
    """

    def __init__(self, uri: str, patience_s: float | None = None) -> None:
        self.uri = uri
        self._patience_s = patience_s
        self._connection: tuple[Any, str] | None = None
        self._scratch: Path | None = None

    def clear_unfinished(self, trial: Path) -> None:  # noqa: ARG002 - signature of the protocol
        """Delete local copies of checkpoints; `write` deletes incomplete checkpoints in the store."""
        self.close()

    def complete(self, trial: Path) -> Iterator[Checkpoint]:
        """Yield complete checkpoints, newest first, downloading each on demand. Raise `StoreUnreachable`."""
        for step in sorted(self._steps(trial.name)[0], reverse=True):
            try:
                yield self._fetch(trial.name, step)
            except (ValueError, KeyError, TypeError, FileNotFoundError) as error:
                _log.warning("checkpoint %s is skipped: %r", self.place(trial.name, step), error)

    def write(
        self,
        trial: Path,
        measurement: Measurement,
        save: Callable[[Path], None],
        *,
        flush: bool = True,
        patience_s: float = 0.0,
    ) -> int | None:
        """Write a local checkpoint and upload it, the manifest last; keep the newest `KEPT`.

        Args:
            trial: Folder of the trial in the sweep.
            measurement: The measurement of this step.
            save: Function that writes the state into a folder.
            flush: Whether the checkpoint must survive a failure of the machine. If False, nothing is written.
            patience_s: Seconds of retries.

        Returns:
            The step, or None if no checkpoint was written.

        Raises:
            StoreUnreachable: The store does not respond.
        """
        if not flush:
            return None
        checkpoint = local.write(self._scratch_folder(trial.name), measurement, save, flush=False)
        try:
            self._upload(trial.name, checkpoint, patience_s)
        finally:
            shutil.rmtree(checkpoint.folder, ignore_errors=True)
        self._prune(trial.name)
        return checkpoint.step

    def place(self, trial_id: str, step: int) -> str:
        """Return the URI of a checkpoint."""
        return child_uri(self.uri, trial_id, checkpoint_name(step))

    def discard(self, trial_ids: Iterable[str]) -> None:
        """Delete all checkpoints of these trials, and log a warning if a deletion fails."""
        discarded_ids = set(trial_ids)
        try:
            if len(discarded_ids) > FEW:
                discarded_ids &= self.entries(self._path(), COMMAND_PATIENCE_S).keys()
            for trial_id in discarded_ids:
                self._delete(self._path(trial_id), COMMAND_PATIENCE_S)
        except (StoreUnreachable, InputError) as error:
            _log.warning("checkpoints in %s could not be deleted: %s", self.uri, error)

    def discard_all(self) -> None:
        """Delete all checkpoints of the sweep. Raise `StoreUnreachable`."""
        self._delete(self._path(), COMMAND_PATIENCE_S)

    def require_answer(self) -> None:
        """Raise `StoreUnreachable` if the store cannot list its files."""
        self.entries(self._path(), COMMAND_PATIENCE_S)

    def probe(self) -> None:
        """Write, read and delete a file. Raise `StoreError` with the reason if one of these steps fails."""
        name = f".probe-{uuid.uuid4().hex}"
        try:
            path = self._path(name)
            self._retry(lambda: self.put(path, b"probe"), COMMAND_PATIENCE_S)
            content = self._retry(lambda: self.get(path), COMMAND_PATIENCE_S)
            self._retry(lambda: self._files.rm_file(path), COMMAND_PATIENCE_S)
        except (StoreUnreachable, FileNotFoundError) as error:
            raise StoreError(
                "--checkpoints must be a location that allows writing, reading and deleting, got "
                f"{self.uri}: {_reason(error.__cause__ or error)}; check bucket, region and credentials, "
                "which come from the environment"
            ) from error
        assert content == b"probe", "a store must give back what it was given"

    def entries(self, folder: str, patience_s: float | None = None) -> Mapping[str, bool]:
        """Return for each name in a folder whether it is a folder. Raise `StoreUnreachable`.

        The result is empty if the folder does not exist.
        """
        return self._retry(lambda: self._entries(folder), patience_s)

    def put(self, path: str, content: bytes) -> None:
        """Write one file. Exceptions of the file system are not converted.

        Args:
            path: Path in the file system.
            content: The bytes to write.
        """
        self._make_folder(path.rpartition("/")[0])
        with self._files.open(path, "wb") as stream:
            stream.write(content)

    def get(self, path: str) -> bytes:
        """Return the content of one file. Exceptions of the file system are not converted."""
        return bytes(self._files.cat_file(path))

    def close(self) -> None:
        """Delete local copies of checkpoints."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    @property
    def _files(self) -> Any:
        return self._connect()[0]

    def _path(self, *names: str) -> str:
        """Return a path in the file system of the store."""
        return "/".join([self._retry(self._connect)[1], *names])

    def _connect(self) -> tuple[Any, str]:
        if self._connection is None:
            self._connection = file_system(self.uri)
        return self._connection

    def _retry(self, action: Callable[[], _Found], patience_s: float | None = None) -> _Found:
        standard = PATIENCE_S if self._patience_s is None else self._patience_s
        return retry_operation(action, standard if patience_s is None else patience_s, self.uri)

    def _prune(self, trial_id: str) -> None:
        """Delete checkpoints that are old or incomplete."""
        try:
            complete_steps, every = self._steps(trial_id, patience_s=0.0)
            for step in every - set(sorted(complete_steps)[-KEPT:]):
                self._delete(self._path(trial_id, checkpoint_name(step)), 0.0)
        except StoreUnreachable as error:
            _log.warning("older checkpoints stay: %s", error)

    def _scratch_folder(self, trial_id: str) -> Path:
        if self._scratch is None:
            clear_abandoned()
            self._scratch = Path(tempfile.mkdtemp(prefix=f"{CHECKPOINTS}{process_label()}-"))
            # A process may end without calling `close`.
            weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        return self._scratch / trial_id

    def _steps(self, trial_id: str, patience_s: float | None = None) -> tuple[set[int], set[int]]:
        """Return the steps that have a manifest, and all steps."""
        names = self.entries(self._path(trial_id), patience_s)
        steps = {name: step for name in names if (step := checkpoint_step(name)) is not None}
        complete = {
            name for name in steps if MANIFEST in self.entries(self._path(trial_id, name), patience_s)
        }
        return {steps[name] for name in complete}, set(steps.values())

    def _entries(self, folder: str) -> dict[str, bool]:
        # Do not use `find`, `walk`, `isdir` and `exists` of fsspec, which return an empty result on failure.
        self._files.invalidate_cache()
        try:
            listing = self._files.ls(folder, detail=True)
        except FileNotFoundError:
            return {}
        paths = {entry["name"].strip("/"): entry["type"] == "directory" for entry in listing}
        paths.pop(folder.strip("/"), None)  # some object stores include the folder itself
        return {path.rpartition("/")[2]: is_folder for path, is_folder in paths.items()}

    def _upload(self, trial_id: str, checkpoint: Checkpoint, patience_s: float) -> None:
        target = self._path(trial_id, checkpoint.folder.name)
        state = f"{STATE}-{uuid.uuid4().hex}"
        for path in sorted(file for file in checkpoint.state.rglob("*") if file.is_file()):
            name = path.relative_to(checkpoint.state).as_posix()
            self._retry(partial(self._copy_up, path, f"{target}/{state}/{name}"), patience_s)
        manifest = {"state": state, "manifest": (checkpoint.folder / MANIFEST).read_text(encoding="utf-8")}
        self._retry(lambda: self.put(f"{target}/{MANIFEST}", json.dumps(manifest).encode()), patience_s)

    def _copy_up(self, source: Path, target: str) -> None:
        self._make_folder(target.rpartition("/")[0])
        with source.open("rb") as file, self._files.open(target, "wb") as stream:
            shutil.copyfileobj(file, stream, length=1 << 20)

    def _fetch(self, trial_id: str, step: int) -> Checkpoint:
        source = self._path(trial_id, checkpoint_name(step))
        target = self._scratch_folder(trial_id) / checkpoint_name(step)
        manifest = parse_json(self._retry(lambda: self.get(f"{source}/{MANIFEST}")))
        shutil.rmtree(target, ignore_errors=True)
        (target / STATE).mkdir(parents=True)
        for name in unseal_json(manifest["manifest"].encode())["files"]:
            path = target / STATE / name
            if not path.resolve().is_relative_to((target / STATE).resolve()):
                raise ValueError(f"files of a checkpoint must be below its folder, got {name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._retry(partial(self._copy_down, f"{source}/{manifest['state']}/{name}", path))
        (target / MANIFEST).write_text(manifest["manifest"], encoding="utf-8")
        return Checkpoint(target, step)

    def _copy_down(self, source: str, target: Path) -> None:
        with self._files.open(source, "rb") as stream, target.open("wb") as file:
            shutil.copyfileobj(stream, file, length=1 << 20)

    def _make_folder(self, folder: str) -> None:
        if self._files.protocol not in NO_FOLDERS:
            self._files.makedirs(folder, exist_ok=True)

    def _delete(self, folder: str, patience_s: float) -> None:
        """Delete a folder, which may be missing. Raise `StoreUnreachable`."""

        def is_there() -> bool:
            self._files.invalidate_cache()
            try:
                self._files.ls(folder, detail=False)
            except FileNotFoundError:
                return False
            return True

        def delete() -> None:
            if is_there():
                with suppress(FileNotFoundError):
                    self._files.rm(folder, recursive=True)
                if is_there():  # `rm` of some file systems skips paths that it cannot list
                    raise OSError(f"{folder} could not be deleted as a whole")

        self._retry(delete, patience_s)


CheckpointStore = FolderStore | ExternalStore
"""Store that reads and writes checkpoints. A trial is identified by its folder in the sweep."""


def make_store(uri: str | None, patience_s: float | None = None) -> CheckpointStore:
    """Return the store at `uri`, or the folder of the sweep if `uri` is None.

    Args:
        uri: URI of an external store.
        patience_s: Seconds of retries of an external store, by default `PATIENCE_S`.
    """
    return FolderStore() if uri is None else ExternalStore(uri, patience_s)


def retry_operation(action: Callable[[], _Found], patience_s: float, uri: str) -> _Found:
    """Return the result of `action`, which is retried for `patience_s` seconds while it raises.

    Args:
        action: One operation of a store of checkpoints.
        patience_s: Seconds after the first error in which the operation is retried.
        uri: URI of the store, for the error message.

    Raises:
        FileNotFoundError: The store responds that the file does not exist.
        InputError: No file system for the URI is installed.
        StoreUnreachable: The last error is in `LASTING`, or the time is over.
    """
    until, pause = time.monotonic() + patience_s, 0.5
    while True:
        try:
            return action()
        except (FileNotFoundError, InputError):
            raise
        except Exception as error:  # libraries of stores have their own exception classes
            if isinstance(error, LASTING) or time.monotonic() + pause > until:
                raise StoreUnreachable(
                    f"the store of checkpoints {redact_url(uri)} does not answer: "
                    f"{_reason(error)}; try again later, for a sweep with `haltsweep resume`"
                ) from error
        time.sleep(pause)
        pause = min(pause * 2, 10.0)


def _reason(error: BaseException) -> str:
    return redact(str(error) or type(error).__name__)
