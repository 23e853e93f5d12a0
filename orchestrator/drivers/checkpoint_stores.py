"""Where the checkpoints of a sweep are: in its folder, or on any file system that pyarrow or fsspec knows.

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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

from orchestrator.abandoned import CHECKPOINTS, clear_abandoned
from orchestrator.drivers import worker_checkpoints as local
from orchestrator.drivers.checkpoint_uris import below, file_system
from orchestrator.drivers.worker_checkpoints import KEPT, MANIFEST, STATE, Checkpoint
from orchestrator.errors import StoreError
from orchestrator.identity import checkpoint_name, checkpoint_step
from orchestrator.json_values import parsed
from orchestrator.redact import redact
from trainables.process_identity import process_label
from trainables.protocol import Measurement

_log = logging.getLogger(__name__)
_Found = TypeVar("_Found")
PATIENCE_S = 60.0
"""For what a trial cannot do without: its checkpoint to go on from, the last one of a confirmed trial."""
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
    """On the file system of a URI; see the module. Nothing but the trial's id is taken from its folder."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._fs, self._root = file_system(uri)
        self._scratch: Path | None = None

    def clear_unfinished(self, trial: Path) -> None:
        """Delete what has no manifest here or there. Raises Unreachable."""
        self.close()
        kept, others = self._listed(trial.name)
        for step in others - kept:
            self._delete(f"{self._trial(trial.name)}/{checkpoint_name(step)}")

    def complete(self, trial: Path) -> Iterator[Checkpoint]:
        """Each is fetched when it is asked for. Raises Unreachable."""
        for step in sorted(self._listed(trial.name)[0], reverse=True):
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
            patiently(lambda: self._upload(trial.name, made), patience_s, self.uri)
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
                wanted &= {Path(each.path).name for each in self._infos(self._root, recursive=False)}
            for trial_id in wanted:
                self._delete(self._trial(trial_id))
        except OSError as error:
            _log.warning("checkpoints in %s could not be deleted: %s", self.uri, error)

    def discard_all(self) -> None:
        """Delete everything, the sweep being removed. Raises Unreachable."""
        patiently(lambda: self._delete_dir(self._root), 0.0, self.uri)

    def probe(self) -> None:
        """Write, read and delete a file. Raises StoreError with what is in the way."""
        path = f"{self._root}/.probe-{uuid.uuid4().hex}"
        try:
            self.put(path, b"probe")
            found = self.get(path)
            self._fs.delete_file(path)
        except OSError as error:
            raise StoreError(
                f"--checkpoints must be a place that can be written, read and deleted from, got {self.uri}: "
                f"{redact(error)}; check bucket, region and credentials, which come from the environment"
            ) from error
        assert found == b"probe", "a store must give back what it was given"

    def put(self, path: str, content: bytes) -> None:
        """Write one file, by its path in the file system. Raises OSError."""
        self._make_folder(path.rpartition("/")[0])
        with self._fs.open_output_stream(path) as stream:
            stream.write(content)

    def get(self, path: str) -> bytes:
        """Read one file. Raises OSError."""
        with self._fs.open_input_stream(path) as stream:
            return bytes(stream.read())

    def close(self) -> None:
        """Delete this machine's copies."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def _trial(self, trial_id: str) -> str:
        return f"{self._root}/{trial_id}"

    def _prune(self, trial_id: str) -> None:
        try:
            steps, _ = self._listed(trial_id, patience_s=0.0)
        except Unreachable as error:
            _log.warning("older checkpoints stay: %s", error)
        else:
            for old in sorted(steps, reverse=True)[KEPT:]:
                self._delete(f"{self._trial(trial_id)}/{checkpoint_name(old)}")

    def _here(self, trial_id: str) -> Path:
        if self._scratch is None:
            clear_abandoned()
            self._scratch = Path(tempfile.mkdtemp(prefix=f"{CHECKPOINTS}{process_label()}-"))
            # Nobody closes the store of a process that ends: its copies go with it.
            weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        return self._scratch / trial_id

    def _listed(self, trial_id: str, patience_s: float | None = None) -> tuple[set[int], set[int]]:
        """Steps with a manifest, and all steps."""
        folder = self._trial(trial_id)
        paths = patiently(
            lambda: [each.path for each in self._infos(folder, recursive=True)],
            PATIENCE_S if patience_s is None else patience_s,
            self.uri,
        )
        parts = [path.removeprefix(folder).strip("/").split("/") for path in paths]
        steps = {step for first, *_ in parts if (step := checkpoint_step(first)) is not None}
        whole = {checkpoint_step(first) for first, *rest in parts if rest == [MANIFEST]}
        return steps & whole, steps

    def _infos(self, folder: str, *, recursive: bool) -> list[Any]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(folder, allow_not_found=True, recursive=recursive)
        return list(self._fs.get_file_info(selector))

    def _upload(self, trial_id: str, made: Checkpoint) -> None:
        target = f"{self._trial(trial_id)}/{made.folder.name}"
        state = f"{STATE}-{uuid.uuid4().hex}"
        for path in sorted(each for each in made.state.rglob("*") if each.is_file()):
            self._copy_up(path, f"{target}/{state}/{path.relative_to(made.state).as_posix()}")
        manifest = {"state": state, "manifest": (made.folder / MANIFEST).read_text(encoding="utf-8")}
        self.put(f"{target}/{MANIFEST}", json.dumps(manifest).encode())

    def _copy_up(self, source: Path, target: str) -> None:
        self._make_folder(target.rpartition("/")[0])
        with source.open("rb") as file, self._fs.open_output_stream(target) as stream:
            shutil.copyfileobj(file, stream, length=1 << 20)

    def _fetched(self, trial_id: str, step: int) -> Checkpoint:
        source = f"{self._trial(trial_id)}/{checkpoint_name(step)}"
        target = self._here(trial_id) / checkpoint_name(step)
        manifest = parsed(patiently(lambda: self.get(f"{source}/{MANIFEST}"), PATIENCE_S, self.uri))
        state = f"{source}/{manifest['state']}"
        shutil.rmtree(target, ignore_errors=True)
        (target / STATE).mkdir(parents=True)
        patiently(lambda: self._copy_down(state, target / STATE), PATIENCE_S, self.uri)
        (target / MANIFEST).write_text(manifest["manifest"], encoding="utf-8")
        return Checkpoint(target, step)

    def _copy_down(self, source: str, target: Path) -> None:
        from pyarrow.fs import FileType

        for info in self._infos(source, recursive=True):
            if info.type is FileType.File:
                path = target / info.path.removeprefix(source).strip("/")
                if not path.resolve().is_relative_to(target.resolve()):
                    raise ValueError(f"files of a checkpoint must be below its folder, got {info.path}")
                path.parent.mkdir(parents=True, exist_ok=True)
                with self._fs.open_input_stream(info.path) as stream, path.open("wb") as file:
                    shutil.copyfileobj(stream, file, length=1 << 20)

    def _make_folder(self, folder: str) -> None:
        if self._fs.type_name not in {"s3", "gcs", "abfs"}:  # there names have slashes, and folders are none
            self._fs.create_dir(folder, recursive=True)

    def _delete(self, folder: str) -> None:
        try:
            self._delete_dir(folder)
        except OSError as error:
            _log.warning("%s in %s could not be deleted: %s", folder, self.uri, error)

    def _delete_dir(self, folder: str) -> None:
        try:
            self._fs.delete_dir(folder)
        except FileNotFoundError:
            return


def store_at(uri: str | None) -> CheckpointStore:
    """The store of a sweep: at `uri`, or in the sweep's folder. Raises InputError."""
    return InFolder() if uri is None else Elsewhere(uri)


def patiently(action: Callable[[], _Found], patience_s: float, uri: str) -> _Found:
    """What `action` gives, tried again for `patience_s` seconds while the store fails. Raises Unreachable."""
    until, pause = time.monotonic() + patience_s, 0.5
    while True:
        try:
            return action()
        except FileNotFoundError:
            raise
        except OSError as error:
            if time.monotonic() + pause > until:
                raise Unreachable(
                    f"the store of checkpoints must answer, and {uri} does not: {redact(error)}; resume the "
                    "sweep when it does"
                ) from error
        time.sleep(pause)
        pause = min(pause * 2, 10.0)
