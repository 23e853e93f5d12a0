"""Report for `status` how far MLflow is behind the ledger, and why."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.execution.sweep.launch_folder import Setup, read_setup
from orchestrator.files.redact import redact_url
from orchestrator.files.sqlite_files import sqlite_file
from orchestrator.identity import SweepFolder
from orchestrator.tracking.state import is_writing, read_state
from search_spaces.wording import amount

if TYPE_CHECKING:
    from orchestrator.cli.stored_sweep import StoredSweep


@dataclass(frozen=True, slots=True)
class TrackingStatus:
    """State of the MLflow projection, from the last note of its writer."""

    store: str
    """URI of MLflow, without passwords."""
    behind: int
    """Number of events of the ledger that are not in MLflow yet."""
    writing: str
    """Current request to MLflow; empty without one."""
    error: str
    """Last failure of MLflow; empty if a later write succeeded."""
    noted_s_ago: float | None
    """Seconds since the writer's last note; None without a note."""
    active: bool = False
    """Whether a process on this machine is writing to MLflow."""

    def line(self, sync: str, *, is_locked: bool) -> str:
        """Return the state as text; the command to catch up is on a separate line for copying.

        Args:
            sync: Command to catch up.
            is_locked: Whether a session runs the sweep.
        """
        is_background = self.active and not is_locked
        if not self.behind and not self.error and not is_background:
            return f"MLflow: up to date ({self.store})"
        age_text = "" if self.noted_s_ago is None else f" (asked {self.noted_s_ago:.0f} s ago)"
        parts = [
            f"{amount(self.behind, 'event')} behind",
            self.writing and f"{self.writing}{age_text}",
            self.error,
            "a background process is writing it" if is_background else "",
            "" if is_locked or self.active or self.error else "no process is writing it",
        ]
        message = f"MLflow: {'; '.join(part for part in parts if part)} ({self.store})"
        return message if is_locked or is_background else f"{message}\ncatch up with: {sync}"


def sweep_tracking_status(sweep: "StoredSweep") -> TrackingStatus | None:
    """Return the state of MLflow; None for a sweep that was never written to MLflow."""
    setup = read_setup(sweep.folder)
    uri = tracking_store(sweep.folder, setup)
    return read_tracking_status(sweep.folder, uri, sweep.ledger.last_seq()) if uri is not None else None


def tracking_store(folder: SweepFolder, setup: Setup) -> str | None:
    """Return the URI of MLflow from the launch, or else from the last `sync`; None if there is neither.

    A URI from `sync` has a mask in place of its password, because passwords are not stored.
    """
    if setup.tracking_uri is not None:
        return setup.tracking_uri
    state = read_state(folder)
    return (state.store or None) if state is not None else None


def read_tracking_status(folder: SweepFolder, uri: str, newest: int) -> TrackingStatus:
    """Return the state of MLflow at `uri`, compared with the newest event, which is at position `newest`."""
    store, state, active = redact_url(uri), read_state(folder), is_writing(folder)
    if state is None or state.store != store:
        return TrackingStatus(store, newest, "", "", None, active)
    file = sqlite_file(uri)
    if state.position and file is not None and not file.exists():
        error = "its file is missing; it may not have been moved with the sweep"
        return TrackingStatus(store, newest, "", error, None)
    age_s = max(0.0, time.time() - state.at)
    return TrackingStatus(store, max(0, newest - state.position), state.doing, state.error, age_s, active)
