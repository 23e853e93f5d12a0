"""Store the progress note and the lock of the process that writes MLflow and Parquet.

The launcher and `status` read the note. Only one process on this machine writes at a time.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.files.disk_errors import disk_remedy
from orchestrator.files.file_digests import seal_json, unseal_json
from orchestrator.files.json_values import from_json_values, to_json_values
from orchestrator.files.regular_files import describe_non_file, read_regular
from orchestrator.identity import SweepFolder
from search_spaces.wording import amount
from trainables.atomic import clear_unfinished, write_atomically
from trainables.locks import hold_lock, is_held

STATE = "tracking.json"
LOCK = ".tracking.lock"


@dataclass(frozen=True, slots=True)
class TrackingState:
    """Progress of the process that writes MLflow, as it last noted it."""

    position: int
    """Position in the ledger of the newest event that the writer has written to MLflow."""
    error: str
    """Why MLflow is behind; empty without an error."""
    at: float
    """Unix time in seconds of this note."""
    newest: int = 0
    """Position in the ledger of the newest event that the writer has read."""
    doing: str = ""
    """Current request to MLflow and the remaining work; empty between two polls of the ledger."""
    failed_at: float = 0.0
    """Unix time in seconds of MLflow's last failure; 0 if there was none."""
    store: str = ""
    """URI of MLflow, without passwords."""

    def waited_for(self, now: float) -> str:
        """Return what the writer waits for, the waiting time and the remaining work."""
        num_missing = self.newest - self.position
        request = f"{self.doing} (asked {max(0, round(now - self.at))} s ago)" if self.doing else ""
        rest = f"{amount(num_missing, 'event')} to go" if num_missing > 0 else ""
        parts = filter(None, (request, rest, self.error))
        return "; ".join(parts) or "its last writes are not confirmed yet"


def read_state(folder: SweepFolder) -> TrackingState | None:
    """Return the last note; None if it is missing or damaged."""
    try:
        return from_json_values(TrackingState, unseal_json(read_regular(folder.root / STATE)))
    except (OSError, ValueError, TypeError):
        return None


def write_state(folder: SweepFolder, state: TrackingState) -> None:
    """Write a note; ignore disk errors."""
    with suppress(OSError):
        write_atomically(folder.root / STATE, seal_json(to_json_values(state)))


def is_writing(folder: SweepFolder) -> bool:
    """Return whether a process on this machine is writing MLflow or Parquet."""
    try:
        return is_held(folder.root / LOCK)
    except OSError:  # the lock belongs to another user
        return False


@contextmanager
def projection_lock(root: Path, wait_s: float) -> Iterator[None]:
    """Hold the lock of the sweep folder `root`. Raise `StoreError` if others hold it for `wait_s` seconds."""

    def refuse(holder: str) -> None:
        raise StoreError(
            f"one process at a time may write MLflow and Parquet of {root.name!r}, and {holder} does so; "
            "wait until that process has written them, or stop it and try again"
        )

    file = root / LOCK
    with ExitStack() as locks:
        try:
            locks.enter_context(hold_lock(file, wait_s, refuse))
        except OSError as error:
            raise _lock_error(file, error) from error
        clear_unfinished(root / STATE)  # remove unfinished files of a killed writer
        yield


def _lock_error(file: Path, error: OSError) -> StoreError:
    kind = "a symbolic link" if file.is_symlink() else describe_non_file(file)
    if kind:
        return StoreError(f"the lock {str(file)!r} must be a file, and is {kind}; delete it")
    return StoreError(f"the lock {str(file)!r} could not be made: {error}; {disk_remedy(error)}")
