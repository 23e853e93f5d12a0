"""Takes a sweep away. Killed half-way it can be done again, and then finishes.

The folder is renamed first: from then on there is no such sweep, and what the renamed folder is called says
that it is to go. What is kept elsewhere goes before the folder, which says where that is.
"""

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import InputError, StoreError
from orchestrator.execution.checkpoints.checkpoint_stores import Elsewhere
from orchestrator.execution.sweep.launch_folder import STORES, Setup, refuse_copy
from orchestrator.files.abandoned import SILENCE_S, own_folder
from orchestrator.files.json_values import from_json_values, parsed, to_json_values
from orchestrator.files.known_addresses import require_known
from orchestrator.files.regular_files import read_ordinary
from orchestrator.identity import SweepFolder
from orchestrator.ledger.deletion import delete_sweep
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger, OnFenced
from orchestrator.tracking.state import projection_lock
from trainables.atomic import PRIVATE, write_atomically

NOTE = "removal.json"
LOCK_WAIT_S = 10.0
_REMOVING = ".removing-"


@dataclass(frozen=True, slots=True)
class _Note:
    """What belongs to a folder that is being removed, and lies elsewhere."""

    sweep: str
    uid: str | None
    storage: str | None
    checkpoints: str | None = None


def remove(
    folder: SweepFolder,
    setup: Setup | None,
    tracking_uri: str | None = None,
    *,
    on_fenced: OnFenced | None = None,
) -> None:
    """Delete a sweep: its folder, its rows of the ledger, its checkpoints elsewhere and its runs in MLflow.

    After an error, or killed on the way, it can be called again.

    Args:
        folder: Folder of the sweep.
        setup: How the sweep was launched; None if launch.json is damaged. Then the ledger is in the folder.
        tracking_uri: MLflow whose runs of the sweep are deleted; None to delete no run.
        on_fenced: As for `Ledger.claim`.

    Raises:
        LeaseHeld: Another process runs the sweep, or may run it.
        InputError: The folder is a link, or a copy whose original would lose its measurements.
        StoreError: Something cannot be deleted.
    """
    if folder.root.is_symlink():
        raise InputError(
            f"the folder of a sweep to remove must be no link, and {folder.root} leads to "
            f"{folder.root.resolve()}; remove it there"
        )
    if setup is not None:
        refuse_copy(folder, setup, STORES if tracking_uri is not None else STORES[:-1])
    # Claimed first: while a sweep runs its tracker is at work too, and is not what to wait for.
    with _claimed(folder, setup, on_fenced) as uid, projection_lock(folder.root, LOCK_WAIT_S):
        if setup is not None and setup.checkpoints is not None:
            Elsewhere(setup.checkpoints).require_answer()  # before anything is deleted
        if tracking_uri is not None and uid is not None:
            _delete_runs(folder, tracking_uri, uid)
        if setup is not None and (setup.storage is not None or setup.checkpoints is not None):
            note = _Note(folder.name, uid, setup.storage, setup.checkpoints)
            write_atomically(folder.root / NOTE, json.dumps(to_json_values(note)), mode=PRIVATE)
        gone = set_aside(folder)
    finish(gone)


def remove_rows(
    storage: str,
    folder: SweepFolder,
    tracking_uri: str | None = None,
    *,
    on_fenced: OnFenced | None = None,
) -> None:
    """As `remove`, for a sweep whose folder is not here: its rows in the database `storage` and its runs.

    Raises StoreError if it is not there, LeaseHeld while somebody runs it or may run it.
    """
    with Ledger.open(storage, folder.name) as ledger:
        uid, lease = ledger.uid, ledger.claim(Holder.current(), grace_s=SILENCE_S, on_fenced=on_fenced)
        try:
            if tracking_uri is not None:
                _delete_runs(folder, tracking_uri, uid)
            delete_sweep(storage, folder.name, uid)
        finally:
            with suppress(StoreError):  # there is no row to be held any more
                ledger.release(lease)


def set_aside(folder: SweepFolder) -> Path:
    """Rename the folder, for good: nobody finds a sweep there any more. For `finish`."""
    gone = folder.root.with_name(f".{folder.name}{_REMOVING}{uuid.uuid4().hex[:8]}")
    return folder.root.rename(gone)


def leftovers(root: Path) -> list[Path]:
    """Folders of removals of the sweep at `root` that were killed on the way."""
    prefix = f".{root.name}{_REMOVING}"
    found = sorted(root.parent.iterdir()) if root.parent.is_dir() else []
    return [path for path in found if path.name.startswith(prefix) and own_folder(path)]


def finish(gone: Path) -> None:
    """Delete what belongs to the renamed folder `gone`, then the folder. Raises StoreError, LeaseHeld."""
    note = _read_note(gone / NOTE)
    if note is not None and note.storage is not None and note.uid is not None:
        require_known(note.storage, "--storage")
        delete_sweep(note.storage, note.sweep, note.uid)
    if note is not None and note.checkpoints is not None:
        Elsewhere(note.checkpoints).discard_all()
    try:
        shutil.rmtree(gone)
    except FileNotFoundError:
        if gone.exists():  # another process deletes it too
            shutil.rmtree(gone, ignore_errors=True)
    except OSError as error:
        raise StoreError(
            f"the folder {gone} must be deleted, and could not be: {error}; put that right and remove the "
            "sweep again, or delete the folder by hand: nothing else is left of it"
        ) from error


@contextmanager
def _claimed(folder: SweepFolder, setup: Setup | None, on_fenced: OnFenced | None) -> Iterator[str | None]:
    """Nobody else may take the sweep; yields its uid in the ledger, None if it is in none."""
    url = setup.ledger_url(folder) if setup is not None else folder.ledger_url
    if (setup is None or setup.storage is None) and not folder.ledger.is_file():
        yield None
        return
    try:
        ledger = Ledger.open(url, folder.name, create=True)
    except StoreError as error:
        if url != folder.ledger_url or "locked" in str(error):
            raise
        yield None  # damaged: nobody can run it
        return
    with ledger:
        lease = ledger.claim(Holder.current(), grace_s=SILENCE_S, on_fenced=on_fenced)
        try:
            yield ledger.uid
        finally:
            with suppress(StoreError):  # the file has been moved away with its folder
                ledger.release(lease)


def _delete_runs(folder: SweepFolder, uri: str, uid: str) -> None:
    from orchestrator.tracking.mlflow.mlflow_removal import delete_runs
    from orchestrator.tracking.sync import artifact_root

    delete_runs(uri, folder.name, uid, artifact_root(folder))


def _read_note(file: Path) -> _Note | None:
    try:
        return from_json_values(_Note, parsed(read_ordinary(file)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"{file} must say which rows of a ledger go with its folder, and cannot be read ({error}); "
            "delete the rows and the folder by hand"
        ) from error
