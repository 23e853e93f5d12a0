"""Where the checkpoints of a sweep are: in its folder, or on any file system that pyarrow or fsspec knows.

Each operation of a store elsewhere is retried for a bounded time whatever it raises, since libraries of
stores have exception classes of their own. Only the errors in `LASTING` are not retried.

Of a store elsewhere nothing but its URI is written down; credentials come from the environment:

    <uri>/<trial id>/step-000001000/state-<unique>/   what the workload saved
    <uri>/<trial id>/step-000001000/checkpoint.json   written last: name of that folder, the local manifest

They are made and checked on this machine's disk and copied from and to the store. An attempt that was given
up for dead may still write there, so every copy has a name of its own.
"""

import json
import logging
import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from orchestrator.errors import InputError, StoreError
from orchestrator.execution.checkpoints import worker_checkpoints as local
from orchestrator.execution.checkpoints.checkpoint_uris import below, file_system, is_thread_safe
from orchestrator.execution.checkpoints.worker_checkpoints import KEPT, MANIFEST, STATE, Checkpoint
from orchestrator.files.abandoned import CHECKPOINTS, clear_abandoned
from orchestrator.files.json_values import parsed
from orchestrator.files.redact import redact, redact_url
from orchestrator.identity import checkpoint_name, checkpoint_step
from trainables.process_identity import process_label
from trainables.protocol import Measurement

_log = logging.getLogger(__name__)
_Found = TypeVar("_Found")
PATIENCE_S = 60.0
"""For what a trial cannot do without: its checkpoint to go on from, the last one of a confirmed trial."""
COMMAND_PATIENCE_S = 10.0
"""For commands that somebody waits for, and for deletions."""
LASTING = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors that a retry cannot resolve."""
NO_FOLDERS = frozenset({"abfs", "gcs", "s3"})
"""Protocols of stores in which folders exist only as parts of names."""
TRANSFERS = 16
"""Files that are copied at the same time."""
FEW = 8
"""Fewer trials are deleted without a look at which are there."""


class Unreachable(StoreError):
    """The store of checkpoints did not answer for longer than a trial can wait."""


class CheckpointStore(Protocol):
    """What a worker does with the checkpoints of a trial, which is named by its folder in the sweep."""

    def clear_unfinished(self, trial: Path) -> None:
        """Delete what killed workers left half-written."""

    def complete(self, trial: Path) -> Iterable[Checkpoint]:
        """Complete checkpoints, newest first, not checked yet. Raises Unreachable."""

    def write(
        self,
        trial: Path,
        measurement: Measurement,
        save: Callable[[Path], None],
        *,
        flush: bool = True,
        patience_s: float = 0.0,
    ) -> int | None:
        """Step of a new checkpoint of what `save` writes; the newest `KEPT` stay.

        None where nothing is kept: without `flush` a store may do without what is soon deleted.
        """


class InFolder:
    """In the sweep's folder, which every worker sees."""

    def clear_unfinished(self, trial: Path) -> None:
        """As of CheckpointStore."""
        local.clear_unfinished(trial)

    def complete(self, trial: Path) -> Iterable[Checkpoint]:
        """As of CheckpointStore."""
        return local.complete(trial)

    def write(
        self,
        trial: Path,
        measurement: Measurement,
        save: Callable[[Path], None],
        *,
        flush: bool = True,
        patience_s: float = 0.0,  # noqa: ARG002 - a disk that refuses once will not think better of it
    ) -> int | None:
        """As of CheckpointStore."""
        return local.write(trial, measurement, save, flush=flush).step


class Elsewhere:
    """On the file system of a URI; see the module. Nothing but the trial's id is taken from its folder.

    Args:
        uri: Folder of the sweep's checkpoints. The first operation connects to its file system.
        patience_s: Seconds for which a failing operation is retried; by default `PATIENCE_S`.
    """

    def __init__(self, uri: str, patience_s: float | None = None) -> None:
        self.uri = uri
        self._patience_s = patience_s
        self._connection: tuple[Any, str] | None = None
        self._scratch: Path | None = None

    def clear_unfinished(self, trial: Path) -> None:
        """Delete what has no manifest here or there. Raises Unreachable."""
        self.close()
        kept, others = self._steps(trial.name)
        for step in others - kept:
            self._try_to_delete(self._path(trial.name, checkpoint_name(step)))

    def complete(self, trial: Path) -> Iterator[Checkpoint]:
        """Each is fetched when it is asked for. Raises Unreachable."""
        for step in sorted(self._steps(trial.name)[0], reverse=True):
            try:
                yield self._fetched(trial.name, step)
            except (ValueError, KeyError, TypeError, FileNotFoundError) as error:
                _log.warning("checkpoint %s is passed over: %r", self.place(trial.name, step), error)

    def write(
        self,
        trial: Path,
        measurement: Measurement,
        save: Callable[[Path], None],
        *,
        flush: bool = True,
        patience_s: float = 0.0,
    ) -> int | None:
        """Written here, copied there, its manifest last. Raises Unreachable; older ones stay as they were."""
        if not flush:
            return None
        made = local.write(self._here(trial.name), measurement, save, flush=False)
        try:
            self._upload(trial.name, made, patience_s)
        finally:
            shutil.rmtree(made.folder, ignore_errors=True)
        self._prune(trial.name)
        return made.step

    def place(self, trial_id: str, step: int) -> str:
        """URI of a checkpoint."""
        return below(self.uri, trial_id, checkpoint_name(step))

    def discard(self, trial_ids: Iterable[str]) -> None:
        """Delete all checkpoints of these trials; what the store refuses to delete stays, and is reported."""
        wanted = set(trial_ids)
        try:
            if len(wanted) > FEW:
                wanted &= self.entries(self._path(), COMMAND_PATIENCE_S).keys()
            for trial_id in wanted:
                self._delete(self._path(trial_id), COMMAND_PATIENCE_S)
        except (Unreachable, InputError) as error:
            _log.warning("checkpoints in %s could not be deleted: %s", self.uri, error)

    def discard_all(self) -> None:
        """Delete everything, the sweep being removed. Raises Unreachable."""
        self._delete(self._path(), COMMAND_PATIENCE_S)

    def require_answer(self) -> None:
        """Raises Unreachable for a store that cannot list its files."""
        self.entries(self._path(), COMMAND_PATIENCE_S)

    def probe(self) -> None:
        """Write, read and delete a file. Raises StoreError with what is in the way."""
        name = f".probe-{uuid.uuid4().hex}"
        try:
            path = self._path(name)
            self._retried(lambda: self.put(path, b"probe"), COMMAND_PATIENCE_S)
            found = self._retried(lambda: self.get(path), COMMAND_PATIENCE_S)
            self._retried(lambda: self._files.rm_file(path), COMMAND_PATIENCE_S)
        except (Unreachable, FileNotFoundError) as error:
            raise StoreError(
                f"--checkpoints must be a place that can be written, read and deleted from, got {self.uri}: "
                f"{_reason(error.__cause__ or error)}; check bucket, region and credentials, which come from "
                "the environment"
            ) from error
        assert found == b"probe", "a store must give back what it was given"

    def entries(self, folder: str, patience_s: float | None = None) -> Mapping[str, bool]:
        """Names in a folder of the file system, and whether each is a folder; none of a missing folder.

        Raises Unreachable.
        """
        return self._retried(lambda: self._entries(folder), patience_s)

    def put(self, path: str, content: bytes) -> None:
        """Write one file, by its path in the file system. Raises whatever the file system does."""
        self._make_folder(path.rpartition("/")[0])
        with self._files.open(path, "wb") as stream:
            stream.write(content)

    def get(self, path: str) -> bytes:
        """Read one file. Raises whatever the file system does."""
        return bytes(self._files.cat_file(path))

    def close(self) -> None:
        """Delete this machine's copies."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    @property
    def _files(self) -> Any:
        return self._connected()[0]

    def _path(self, *names: str) -> str:
        """Path in the file system."""
        return "/".join([self._retried(self._connected)[1], *names])

    def _connected(self) -> tuple[Any, str]:
        if self._connection is None:
            self._connection = file_system(self.uri)
        return self._connection

    def _retried(self, action: Callable[[], _Found], patience_s: float | None = None) -> _Found:
        standard = PATIENCE_S if self._patience_s is None else self._patience_s
        return patiently(action, standard if patience_s is None else patience_s, self.uri)

    def _for_each(self, action: Callable[[str], None], names: Iterable[str]) -> None:
        """Call `action` with each name, in several threads if the file system allows it."""
        with ThreadPoolExecutor(TRANSFERS if is_thread_safe(self._files) else 1) as pool:
            for _ in pool.map(action, names):
                pass

    def _prune(self, trial_id: str) -> None:
        try:
            steps, _ = self._steps(trial_id, patience_s=0.0)
        except Unreachable as error:
            _log.warning("older checkpoints stay: %s", error)
        else:
            for old in sorted(steps, reverse=True)[KEPT:]:
                self._try_to_delete(self._path(trial_id, checkpoint_name(old)))

    def _here(self, trial_id: str) -> Path:
        if self._scratch is None:
            clear_abandoned()
            self._scratch = Path(tempfile.mkdtemp(prefix=f"{CHECKPOINTS}{process_label()}-"))
            # Nobody closes the store of a process that ends: its copies go with it.
            weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        return self._scratch / trial_id

    def _steps(self, trial_id: str, patience_s: float | None = None) -> tuple[set[int], set[int]]:
        """Steps with a manifest, and all steps."""
        names = self.entries(self._path(trial_id), patience_s)
        steps = {name: step for name in names if (step := checkpoint_step(name)) is not None}
        whole = {
            step
            for name, step in steps.items()
            if MANIFEST in self.entries(self._path(trial_id, name), patience_s)
        }
        return whole, set(steps.values())

    def _entries(self, folder: str) -> dict[str, bool]:
        # `find`, `walk`, `isdir` and `exists` of fsspec take a store that fails for one that is empty.
        self._files.invalidate_cache()
        try:
            found = self._files.ls(folder, detail=True)
        except FileNotFoundError:
            return {}
        paths = {each["name"].strip("/"): each["type"] == "directory" for each in found}
        paths.pop(folder.strip("/"), None)  # some object stores list the folder itself
        return {path.rpartition("/")[2]: is_folder for path, is_folder in paths.items()}

    def _below(self, folder: str, prefix: str = "") -> Iterator[str]:
        """Paths of all files, relative to the folder."""
        for name, is_folder in self.entries(f"{folder}/{prefix}".rstrip("/")).items():
            if is_folder:
                yield from self._below(folder, f"{prefix}{name}/")
            else:
                yield f"{prefix}{name}"

    def _upload(self, trial_id: str, made: Checkpoint, patience_s: float) -> None:
        target = self._path(trial_id, made.folder.name)
        state = f"{STATE}-{uuid.uuid4().hex}"
        paths = [each for each in made.state.rglob("*") if each.is_file()]
        names = sorted(each.relative_to(made.state).as_posix() for each in paths)
        for folder in sorted({f"{target}/{state}/{name}".rpartition("/")[0] for name in names}):
            self._retried(partial(self._make_folder, folder), patience_s)

        def copy(name: str) -> None:
            self._retried(lambda: self._copy_up(made.state / name, f"{target}/{state}/{name}"), patience_s)

        self._for_each(copy, names)
        manifest = {"state": state, "manifest": (made.folder / MANIFEST).read_text(encoding="utf-8")}
        self._retried(lambda: self.put(f"{target}/{MANIFEST}", json.dumps(manifest).encode()), patience_s)

    def _copy_up(self, source: Path, target: str) -> None:
        with source.open("rb") as file, self._files.open(target, "wb") as stream:
            shutil.copyfileobj(file, stream, length=1 << 20)

    def _fetched(self, trial_id: str, step: int) -> Checkpoint:
        source = self._path(trial_id, checkpoint_name(step))
        target = self._here(trial_id) / checkpoint_name(step)
        manifest = parsed(self._retried(lambda: self.get(f"{source}/{MANIFEST}")))
        state = f"{source}/{manifest['state']}"
        shutil.rmtree(target, ignore_errors=True)
        (target / STATE).mkdir(parents=True)

        def copy(name: str) -> None:
            path = target / STATE / name
            if not path.resolve().is_relative_to((target / STATE).resolve()):
                raise ValueError(f"files of a checkpoint must be below its folder, got {name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._retried(lambda: self._copy_down(f"{state}/{name}", path))

        self._for_each(copy, list(self._below(state)))
        (target / MANIFEST).write_text(manifest["manifest"], encoding="utf-8")
        return Checkpoint(target, step)

    def _copy_down(self, source: str, target: Path) -> None:
        with self._files.open(source, "rb") as stream, target.open("wb") as file:
            shutil.copyfileobj(stream, file, length=1 << 20)

    def _make_folder(self, folder: str) -> None:
        if self._files.protocol not in NO_FOLDERS:
            self._files.makedirs(folder, exist_ok=True)

    def _try_to_delete(self, folder: str) -> None:
        try:
            self._delete(folder, 0.0)
        except Unreachable as error:
            _log.warning("%s could not be deleted: %s", folder, error)

    def _delete(self, folder: str, patience_s: float) -> None:
        """Delete a folder, which may be missing. Raises Unreachable."""

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
                if is_there():  # `rm` of some file systems skips what it cannot list
                    raise OSError(f"{folder} could not be deleted as a whole")

        self._retried(delete, patience_s)


def store_at(uri: str | None, patience_s: float | None = None) -> CheckpointStore:
    """The store of a sweep: at `uri`, or in the sweep's folder; `patience_s` as for `Elsewhere`."""
    return InFolder() if uri is None else Elsewhere(uri, patience_s)


def patiently(action: Callable[[], _Found], patience_s: float, uri: str) -> _Found:
    """Return what `action` does, which is retried for `patience_s` seconds while it raises.

    Args:
        action: One operation of a store of checkpoints.
        patience_s: Seconds after the first error in which the operation is retried.
        uri: The store, for the message.

    Raises:
        FileNotFoundError: The store answers that the file does not exist.
        InputError: The URI names no file system that is installed here.
        Unreachable: The last error cannot be mended by a retry, or the time is over.
    """
    until, pause = time.monotonic() + patience_s, 0.5
    while True:
        try:
            return action()
        except (FileNotFoundError, InputError):
            raise
        except Exception as error:  # libraries of stores have classes of their own
            if isinstance(error, LASTING) or time.monotonic() + pause > until:
                raise Unreachable(
                    f"the store of checkpoints must answer, and {redact_url(uri)} does not: "
                    f"{_reason(error)}; try again when it does, a sweep with `haltsweep resume`"
                ) from error
        time.sleep(pause)
        pause = min(pause * 2, 10.0)


def _reason(error: BaseException) -> str:
    return redact(str(error) or type(error).__name__)
