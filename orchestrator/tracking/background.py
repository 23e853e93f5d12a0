"""Starts, ends and watches the follower. Light: the launcher imports this and neither MLflow nor pyarrow."""

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace

from orchestrator.identity import SweepFolder
from orchestrator.tracking.mlflow_runs import check_uri

STATE = "tracking.json"
LOG = "tracking.log"
LEDGER_VARIABLE = "HALTSWEEP_FOLLOWER_LEDGER"
URI_VARIABLE = "HALTSWEEP_FOLLOWER_URI"
OUTAGE_S = 5.0
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class TrackingState:
    """How far the projection is, for `status`; no more than a hint."""

    position: int
    """The newest event in MLflow."""
    error: str
    """Why it is behind; empty while all is well."""
    at: float
    """Unix time in seconds of this note."""


class Follower:
    """A follower that this process started."""

    def __init__(self, process: subprocess.Popen[bytes], folder: SweepFolder) -> None:
        self._process = process
        self._folder = folder

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def drain(self, timeout_s: float, outage_s: float = OUTAGE_S) -> TrackingState | None:
        """Have it write everything that is in the ledger, and end; None if it did, else how far it came.

        Call it after the sweep was closed and its lease released. A follower that is not ready in time, or
        after `outage_s` has nothing to tell but an outage of MLflow, is killed; `haltsweep sync` catches up.
        """
        pipe = self._process.stdin
        assert pipe is not None, "a follower is started with a pipe to be told by"
        asked_at = time.time()
        # A byte rather than the end of the pipe: a forked child of ours may hold another end open.
        with contextlib.suppress(OSError), pipe:
            pipe.write(b"\n")
        began = time.monotonic()
        while self._process.poll() is None and (waited := time.monotonic() - began) < timeout_s:
            state = read_state(self._folder)
            if waited >= outage_s and state is not None and state.error and state.at >= asked_at:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(POLL_S)
        if self._process.poll() is None:
            self.kill()
        if self._process.returncode == 0:
            return None
        state = read_state(self._folder) or TrackingState(0, "", time.time())
        early = f"the background writer ended before all was written; see {self._folder.root / LOG}"
        return replace(state, error=state.error or early)

    def kill(self) -> None:
        """End it at once; nothing is lost."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def start_follower(folder: SweepFolder, ledger_url: str, uri: str) -> Follower:
    """Follow `ledger_url` into the MLflow at `uri`, in the background, until drained or this process is gone.

    The plan must be in the folder and the sweep in the ledger. Raises InputError for a file store.
    """
    check_uri(uri)
    command = [
        sys.executable,
        "-m",
        "orchestrator.tracking.follower",
        str(folder.root.resolve()),
        str(os.getpid()),
    ]
    with (folder.root / LOG).open("ab") as log:
        # A session of its own: Ctrl-C is for the launcher, which closes the sweep and waits for this one.
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            # Not as arguments, which every user of the machine can read: they may hold passwords.
            env={**os.environ, LEDGER_VARIABLE: ledger_url, URI_VARIABLE: uri},
        )
    return Follower(process, folder)


def read_state(folder: SweepFolder) -> TrackingState | None:
    """The follower's last note; None if it has left none."""
    try:
        return TrackingState(**json.loads((folder.root / STATE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_state(folder: SweepFolder, state: TrackingState) -> None:
    """Leave a note; a disk that does not take it is no reason to stop."""
    fresh = folder.root / f".{STATE}.{os.getpid()}"
    with contextlib.suppress(OSError):
        fresh.write_text(json.dumps(asdict(state)), encoding="utf-8")
        fresh.replace(folder.root / STATE)
