"""Start, watch and end the follower, the process that writes MLflow and Parquet in the background.

The launcher imports this module, so the module imports neither MLflow nor pyarrow.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from orchestrator.identity import SweepFolder
from orchestrator.tracking.mlflow.mlflow_runs import check_uri
from orchestrator.tracking.state import TrackingState, read_state
from orchestrator.tracking.summary import ArmSummary, SummaryFile

LOG = "tracking.log"
LEDGER_VARIABLE = "HALTSWEEP_FOLLOWER_LEDGER"
URI_VARIABLE = "HALTSWEEP_FOLLOWER_URI"
PARQUET_BEHIND = 3
"""Exit code of a follower that updated MLflow but could not write the Parquet files."""
FINISH = b"f"
"""Byte on the follower's standard input: write everything and exit."""
DETACH = b"d"
"""Byte on the follower's standard input: no process waits any more, so exit after one more attempt."""
OUTAGE_S = 5.0
POLL_S = 0.1
OnWait = Callable[[str], None]
"""Called often while a session waits for MLflow, with a description of the remaining work."""


class Follower:
    """Handle of the background writer of a sweep."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: SweepFolder, summary: SummaryFile) -> None:
        """Take over the already started process of the writer.

        Args:
            process: The process, with a pipe as standard input.
            folder: Folder of the sweep.
            summary: File for the summary of the arms, which the writer reads when it is asked to finish.
        """
        self._folder = folder
        self._summary = summary
        self._process = process
        self.detached = False
        """Whether the writer continues although this process no longer waits for it."""

    @property
    def pid(self) -> int:
        """Id of the current process of the writer."""
        return self._process.pid

    @property
    def is_parquet_outdated(self) -> bool:
        """Whether the writer ended with MLflow up to date but outdated Parquet files."""
        return self._process.returncode == PARQUET_BEHIND

    def drain(
        self,
        timeout_s: float,
        outage_s: float = OUTAGE_S,
        on_wait: OnWait = lambda _: None,
        summary: ArmSummary | None = None,
    ) -> TrackingState | None:
        """Make the writer write all events and exit; return None if MLflow has all of them, else its state.

        Call this after the sweep was closed and its lease released. Ctrl-C ends the wait and is not raised.

        Args:
            timeout_s: Seconds until the writer is left to finish by itself (`detached`).
            outage_s: Seconds after which a writer that only reports an outage of MLflow is killed; `haltsweep
                sync` catches up.
            on_wait: Called often, with a description of the remaining work.
            summary: Summary for the arms' runs. With a summary, the files of the sweep are uploaded, too.
        """
        prefix = ""
        try:
            if summary is not None:
                self._summary.write(summary)
            self._finish(timeout_s, outage_s, on_wait)
        except KeyboardInterrupt:
            prefix = "left at Ctrl-C: "
        finally:
            if not self.detached:
                self.kill()
        if not self.detached and (self._process.returncode == 0 or self.is_parquet_outdated):
            return None
        noted = read_state(self._folder)
        state = noted or TrackingState(0, "", time.time())
        if self.detached or prefix:
            return replace(state, error=f"{prefix}{_activity_text(noted)}")
        early_end_text = f"the background writer ended before all was written; see {self._folder.root / LOG}"
        return replace(state, error=state.error or early_end_text)

    def kill(self) -> None:
        """End the writer at once and permanently. No data are lost, since the ledger has all events."""
        self._process.kill()
        self._process.wait()
        self._close_pipe()
        self._summary.close()

    def _finish(self, timeout_s: float, outage_s: float, on_wait: OnWait) -> None:
        """Wait until the writer has ended or reports an outage; detach it after `timeout_s`."""
        # Times of the writer are only compared with each other, since the system clock may be changed
        # meanwhile.
        failed_before, began = _failed_at(read_state(self._folder)), time.monotonic()
        failed_s: float | None = None
        self._send(FINISH)
        while (waited := time.monotonic() - began) < timeout_s:
            if self._process.poll() is not None:
                return
            state = read_state(self._folder)
            # Once an outage is over, writing to MLflow may take as long as it needs.
            failing = state is not None and state.error and _failed_at(state) != failed_before
            failed_s = failed_s or waited if failing else None
            if failed_s is not None and waited - failed_s >= outage_s:
                return
            on_wait(_activity_text(state))
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(POLL_S)
        self.detached = True
        self._send(DETACH)
        self._close_pipe()
        self._summary.close()
        # If this process continues, as a notebook does, the wait prevents a zombie.
        threading.Thread(target=self._process.wait, name="detached follower", daemon=True).start()

    def _send(self, request: bytes) -> None:
        # Closing the pipe is no signal, since a forked child may keep it open.
        assert self._process.stdin is not None, "a follower is started with a pipe"
        with contextlib.suppress(OSError):
            self._process.stdin.write(request)
            self._process.stdin.flush()

    def _close_pipe(self) -> None:
        if self._process.stdin is not None:
            # Data buffered for a dead process cannot be delivered.
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def _failed_at(state: TrackingState | None) -> float:
    return 0.0 if state is None else state.failed_at


def _activity_text(state: TrackingState | None) -> str:
    return "starting" if state is None else state.waited_for(time.time())


def start_follower(folder: SweepFolder, ledger_url: str, uri: str) -> Follower:
    """Start writing the ledger to MLflow in the background, until drained or until this process ends.

    Args:
        folder: Folder of the sweep, with its plan.
        ledger_url: URL of the ledger, which has the sweep.
        uri: MLflow's URI of the store.

    Raises:
        InputError: `check_uri` refuses the URI.
    """
    check_uri(uri)
    summary = SummaryFile()
    arguments = [str(folder.root.resolve()), str(os.getpid()), str(summary.fd)]

    with (folder.root / LOG).open("ab") as log:
        # Use a separate session: Ctrl-C must reach only the launcher, which closes the sweep first.
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module  # nosec B603
            [sys.executable, "-m", "orchestrator.tracking.follower", *arguments],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(summary.fd,),
            # URLs may contain passwords, and every user of the machine can read arguments.
            env={**os.environ, LEDGER_VARIABLE: ledger_url, URI_VARIABLE: uri},
        )
    return Follower(process, folder, summary)
