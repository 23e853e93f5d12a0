"""Remove a sweep. A killed removal can be repeated and then finishes.

The folder is renamed first, after which the sweep no longer exists. The new name marks the folder for
deletion. External data are deleted before the folder, which contains their locations.
"""

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import InputError, StoreError
from orchestrator.execution.checkpoints.checkpoint_stores import COMMAND_PATIENCE_S, ExternalStore
from orchestrator.execution.sweep.launch_folder import STORE_FIELDS, Setup, refuse_copy
from orchestrator.files.abandoned_folders import SILENCE_S, is_own_folder
from orchestrator.files.json_values import from_json_values, parse_json, to_json_values
from orchestrator.files.known_addresses import require_known
from orchestrator.files.regular_files import read_regular
from orchestrator.identity import SweepFolder
from orchestrator.ledger.deletion import delete_sweep
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger, OnLeaseTaken
from orchestrator.tracking.state import projection_lock
from trainables.atomic import PRIVATE, write_atomically

NOTE_FILE = "removal.json"
LOCK_WAIT_S = 10.0
_REMOVAL_INFIX = ".removing-"


@dataclass(frozen=True, slots=True)
class _RemovalNote:
    """External data of a folder that is being removed."""

    sweep: str
    uid: str | None
    storage: str | None
    checkpoints: str | None = None


def remove_sweep(
    folder: SweepFolder,
    setup: Setup | None,
    tracking_uri: str | None = None,
    *,
    on_fenced: OnLeaseTaken | None = None,
) -> None:
    """Delete a sweep: its folder, its rows of the ledger, its external checkpoints and its runs in MLflow.

    After an error or a kill, the function can be called again.

    Args:
        folder: Folder of the sweep.
        setup: Setup of the sweep; None if launch.json is damaged, which assumes a ledger in the folder.
        tracking_uri: MLflow store whose runs of the sweep are deleted; None to delete no runs.
        on_fenced: See `Ledger.claim`.

    Raises:
        LeaseHeldError: Another process runs, or may run, the sweep.
        InputError: The folder is a link, or a copy whose original would lose its measurements.
        StoreError: Some data cannot be deleted.
    """
    if folder.root.is_symlink():
        raise InputError(
            f"cannot remove a sweep through a symbolic link: {folder.root} points to "
            f"{folder.root.resolve()}; remove it there"
        )
    if setup is not None:
        refuse_copy(folder, setup, STORE_FIELDS if tracking_uri is not None else STORE_FIELDS[:-1])
    # Claim first, since the tracker of a running sweep would hold the lock.
    with _claim_sweep(folder, setup, on_fenced) as uid, projection_lock(folder.root, LOCK_WAIT_S):
        if setup is not None and setup.checkpoints is not None:
            ExternalStore(setup.checkpoints, COMMAND_PATIENCE_S).names("")  # must answer before any deletion
        if tracking_uri is not None and uid is not None:
            _delete_runs(folder, tracking_uri, uid)
        if setup is not None and (setup.storage is not None or setup.checkpoints is not None):
            note = _RemovalNote(folder.name, uid, setup.storage, setup.checkpoints)
            write_atomically(folder.root / NOTE_FILE, json.dumps(to_json_values(note)), mode=PRIVATE)
        renamed_folder = rename_for_removal(folder)
    finish_removal(renamed_folder)


def remove_database_sweep(
    storage: str,
    folder: SweepFolder,
    tracking_uri: str | None = None,
    *,
    on_fenced: OnLeaseTaken | None = None,
) -> None:
    """Remove a sweep that has no folder on this machine: its rows in a database and its runs in MLflow.

    Args:
        storage: URL of the database.
        folder: Former folder of the sweep, which provides its name.
        tracking_uri: MLflow store whose runs of the sweep are deleted; None to delete no runs.
        on_fenced: See `Ledger.claim`.

    Raises:
        StoreError: The database does not contain the sweep.
        LeaseHeldError: Another process runs, or may run, the sweep.
    """
    with Ledger.open(storage, folder.name) as ledger:
        uid, lease = ledger.uid, ledger.claim(Holder.current(), grace_s=SILENCE_S, on_fenced=on_fenced)
        try:
            if tracking_uri is not None:
                _delete_runs(folder, tracking_uri, uid)
            delete_sweep(storage, folder.name, uid)
        finally:
            with suppress(StoreError):  # the row of the lease was deleted
                ledger.release(lease)


def rename_for_removal(folder: SweepFolder) -> Path:
    """Rename the folder so that the sweep no longer exists; return the new path for `finish_removal`."""
    renamed_folder = folder.root.with_name(f".{folder.name}{_REMOVAL_INFIX}{uuid.uuid4().hex[:8]}")
    return folder.root.rename(renamed_folder)


def unfinished_removals(root: Path) -> list[Path]:
    """Return folders of killed removals of the sweep at `root`."""
    prefix = f".{root.name}{_REMOVAL_INFIX}"
    paths = sorted(root.parent.iterdir()) if root.parent.is_dir() else []
    return [path for path in paths if path.name.startswith(prefix) and is_own_folder(path)]


def finish_removal(removed_folder: Path) -> None:
    """Delete the external data of the renamed folder `removed_folder`, then the folder.

    Raises:
        StoreError: Some data cannot be deleted.
        LeaseHeldError: Another process holds the sweep.
    """
    note = _read_note(removed_folder / NOTE_FILE)
    if note is not None and note.storage is not None and note.uid is not None:
        require_known(note.storage, "--storage")
        delete_sweep(note.storage, note.sweep, note.uid)
    if note is not None and note.checkpoints is not None:
        ExternalStore(note.checkpoints).delete("")
    try:
        shutil.rmtree(removed_folder)
    except FileNotFoundError:
        if removed_folder.exists():  # another process deletes the folder concurrently
            shutil.rmtree(removed_folder, ignore_errors=True)
    except OSError as error:
        raise StoreError(
            f"the folder {removed_folder} could not be deleted: {error}; fix the cause and remove the sweep "
            "again, or delete the folder by hand; everything else of the sweep has been deleted"
        ) from error


@contextmanager
def _claim_sweep(
    folder: SweepFolder, setup: Setup | None, on_fenced: OnLeaseTaken | None
) -> Iterator[str | None]:
    """Hold the sweep inside the context; yield its uid in the ledger, or None if it has no ledger."""
    url = setup.ledger_url(folder) if setup is not None else folder.ledger_url
    if (setup is None or setup.storage is None) and not folder.ledger.is_file():
        yield None
        return
    try:
        ledger = Ledger.open(url, folder.name, create=True)
    except StoreError as error:
        if url != folder.ledger_url or "locked" in str(error):
            raise
        yield None  # with a damaged ledger, no process can run the sweep
        return
    with ledger:
        lease = ledger.claim(Holder.current(), grace_s=SILENCE_S, on_fenced=on_fenced)
        try:
            yield ledger.uid
        finally:
            with suppress(StoreError):  # the ledger file was renamed together with its folder
                ledger.release(lease)


def _delete_runs(folder: SweepFolder, uri: str, uid: str) -> None:
    from orchestrator.tracking.mlflow.mlflow_removal import delete_runs
    from orchestrator.tracking.sync import artifact_root

    delete_runs(uri, folder.name, uid, artifact_root(folder))


def _read_note(file: Path) -> _RemovalNote | None:
    try:
        return from_json_values(_RemovalNote, parse_json(read_regular(file)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"{file} must name the rows of the ledger that belong to its folder, and is not readable "
            f"({error}); delete the rows and the folder by hand"
        ) from error
