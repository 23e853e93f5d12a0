"""Starts, watches and ends the follower, the process that writes MLflow and Parquet in the background.

The launcher imports this module, so it imports neither MLflow nor pyarrow.
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
"""Exit code of a follower that has brought MLflow up to date and could not write the Parquet files."""
FINISH = b"f"
"""Byte on the follower's standard input: write everything and end."""
DETACH = b"d"
"""Byte on the follower's standard input: nobody waits any more, so end after one more try."""
OUTAGE_S = 5.0
POLL_S = 0.1
MAX_RESTARTS = 5
"""Number of times that a follower that was killed is started again to finish."""
OnWait = Callable[[str], None]
"""Called often while MLflow is waited for, with a description of the work that is left."""


class Follower:
    """The background writer of a sweep."""

    def __init__(
        self,
        start: Callable[[], "subprocess.Popen[bytes]"],
        folder: SweepFolder,
        summary: SummaryFile,
    ) -> None:
        """Start the writer.

        Args:
            start: Starts its process, with a pipe as standard input.
            folder: Folder of the sweep.
            summary: File from which it reads the summary of the arms when it is asked to finish.
        """
        self._start = start
        self._folder = folder
        self._summary = summary
        self._process = start()
        self._restarts = 0
        self.detached = False
        """Whether it still writes although this process no longer waits for it."""

    @property
    def pid(self) -> int:
        """Id of the process that runs now."""
        return self._process.pid

    @property
    def parquet_behind(self) -> bool:
        """Whether it has ended with MLflow up to date and the Parquet files not."""
        return self._process.returncode == PARQUET_BEHIND

    def drain(
        self,
        timeout_s: float,
        outage_s: float = OUTAGE_S,
        waiting: OnWait = lambda _: None,
        summary: ArmSummary | None = None,
    ) -> TrackingState | None:
        """Have it write everything in the ledger and end; return None if MLflow has it, else how far it came.

        Call this after the sweep was closed and its lease released. Ctrl-C ends the wait and is not raised.

        Args:
            timeout_s: Seconds until the writer is left to finish by itself (`detached`).
            outage_s: Seconds after which a writer that reports nothing but an outage of MLflow is killed;
                `haltsweep sync` catches up.
            waiting: Called often, with a description of the work that is left.
            summary: Written to the arms' runs. The files of the sweep are uploaded then too.
        """
        why = ""
        try:
            if summary is not None:
                self._summary.write(summary)
            self._finish(timeout_s, outage_s, waiting)
        except KeyboardInterrupt:
            why = "left at Ctrl-C: "
        finally:
            if not self.detached:
                self.kill()
        if not self.detached and (self._process.returncode == 0 or self.parquet_behind):
            return None
        noted = read_state(self._folder)
        state = noted or TrackingState(0, "", time.time())
        if self.detached or why:
            return replace(state, error=f"{why}{_doing(noted)}")
        early = f"the background writer ended before all was written; see {self._folder.root / LOG}"
        return replace(state, error=state.error or early)

    def kill(self) -> None:
        """End it at once and for good. Nothing is lost, since the ledger has everything."""
        self._process.kill()
        self._process.wait()
        self._close_pipe()
        self._summary.close()

    def _finish(self, timeout_s: float, outage_s: float, waiting: OnWait) -> None:
        """Wait until it has ended or reports an outage; detach it after `timeout_s`."""
        # The writer's times are only compared with each other, since the system's clock may be set meanwhile.
        before, began = _failed_at(read_state(self._folder)), time.monotonic()
        failed_s: float | None = None
        self._send(FINISH)
        while (waited := time.monotonic() - began) < timeout_s:
            if (code := self._process.poll()) is not None:
                # An error would occur again. A killed process is started again.
                if code >= 0 or not self._restart():
                    return
                self._send(FINISH)
            state = read_state(self._folder)
            # After an outage, MLflow is written to for as long as it takes.
            failing = state is not None and state.error and _failed_at(state) != before
            failed_s = failed_s or waited if failing else None
            if failed_s is not None and waited - failed_s >= outage_s:
                return
            waiting(_doing(state))
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(POLL_S)
        self.detached = True
        self._send(DETACH)
        self._close_pipe()
        self._summary.close()
        # If this process lives on, as a notebook does, it reads the exit code, or a zombie would be left.
        threading.Thread(target=self._process.wait, name="detached follower", daemon=True).start()

    def _send(self, what: bytes) -> None:
        # The end of the pipe is no sign, since a forked child may hold it open.
        assert self._process.stdin is not None, "a follower is started with a pipe"
        with contextlib.suppress(OSError):
            self._process.stdin.write(what)
            self._process.stdin.flush()

    def _close_pipe(self) -> None:
        if self._process.stdin is not None:
            # What was buffered for a dead process cannot be delivered.
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _restart(self) -> bool:
        """Start it anew; return whether that was possible and not done too often."""
        if self._restarts == MAX_RESTARTS:
            return False
        self._restarts += 1
        self._close_pipe()
        try:
            self._process = self._start()
        except OSError:  # the folder is gone, or the machine is full
            return False
        return True


def _failed_at(state: TrackingState | None) -> float:
    return 0.0 if state is None else state.failed_at


def _doing(state: TrackingState | None) -> str:
    return "starting" if state is None else state.waited_for(time.time())


def start_follower(folder: SweepFolder, ledger_url: str, uri: str) -> Follower:
    """Start to write the ledger to MLflow in the background, until drained or until this process ends.

    Args:
        folder: Folder of the sweep, with its plan.
        ledger_url: URL of the ledger, which has the sweep.
        uri: MLflow's URI of the store.

    Raises:
        InputError: `check_uri` refuses the URI.
    """
    check_uri(uri)
    summary = SummaryFile()
    command = [
        sys.executable,
        "-m",
        "orchestrator.tracking.follower",
        str(folder.root.resolve()),
        str(os.getpid()),
        str(summary.fd),
    ]

    def start() -> "subprocess.Popen[bytes]":
        with (folder.root / LOG).open("ab") as log:
            # In a session of its own, since Ctrl-C is for the launcher, which closes the sweep first.
            return subprocess.Popen(  # noqa: S603 - our own interpreter and module  # nosec B603
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(summary.fd,),
                # URLs may hold passwords, and every user of the machine can read arguments.
                env={**os.environ, LEDGER_VARIABLE: ledger_url, URI_VARIABLE: uri},
            )

    return Follower(start, folder, summary)
