"""Keep MLflow and Parquet up to date with the ledger in a background process.

The process that runs the sweep therefore neither waits for MLflow nor fails with it. The follower exits after
a request to finish on its standard input, once everything is written. If no process waits for it any more, it
makes one more attempt and exits. The next session or `haltsweep sync` then catches up.
"""

import argparse
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.errors import HaltsweepError, StoreError
from orchestrator.files.redact import redact_url, redacted_stderr
from orchestrator.garbage import collect_normally, collect_rarely
from orchestrator.identity import SweepFolder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import read_plan
from orchestrator.tracking.background import DETACH, LEDGER_VARIABLE, PARQUET_BEHIND, URI_VARIABLE
from orchestrator.tracking.inputs import Inputs, read_inputs
from orchestrator.tracking.mlflow.mlflow_writer import MlflowWriter
from orchestrator.tracking.parquet import ParquetFiles
from orchestrator.tracking.state import TrackingState, projection_lock, write_state
from orchestrator.tracking.summary import ArmSummary, read_summary
from orchestrator.tracking.sync import artifact_root

POLL_S = 0.3
"""Seconds between two polls of the ledger, in which a run gets at most one request."""
PARQUET_S = 30.0
PARQUET_SHARE = 20
"""Minimum time between two Parquet writes, as a multiple of the duration of a write."""
BACKOFF_S = (1.0, 60.0)
"""Shortest and longest wait after an outage, in seconds."""
NOTE_S = 0.5
"""Minimum seconds between two progress notes."""
LOCK_WAIT_S = 600.0
NICENESS = 5


class FollowerLoop:
    """Loop that writes the ledger of one sweep to MLflow and Parquet until it is asked to finish."""

    def __init__(
        self,
        folder: SweepFolder,
        ledger: Ledger,
        uri: str,
        wait_for_finish: Callable[[float], bool],
        has_parent: Callable[[], bool],
        *,
        summary: Callable[[], ArmSummary | None] = lambda: None,
    ) -> None:
        """Prepare the loop.

        Args:
            folder: Folder of the sweep, with its plan.
            ledger: Ledger of the sweep.
            uri: MLflow's URI of the store.
            wait_for_finish: Waits for some seconds and returns whether to finish.
            has_parent: Returns whether the process that started this one lives and waits.
            summary: Returns the summary of the arms, which is written last.
        """
        self._folder = folder
        self._ledger = ledger
        self._uri = uri
        self._wait_for_finish = wait_for_finish
        self._has_parent = has_parent
        self._summary = summary
        self._plan = read_plan(folder)
        self._parquet = ParquetFiles(folder, self._plan, ledger)
        self._writer: MlflowWriter | None = None
        self._inputs: Inputs = {}
        self._state = TrackingState(0, "", 0.0, store=redact_url(uri))
        self._noted_at = float("-inf")
        self._wait_s, self._not_before = BACKOFF_S[0], 0.0
        self.parquet_behind = False
        """Whether the last attempt to write the Parquet files failed."""

    def run(self) -> bool:
        """Write until asked to finish or the parent is gone; return whether MLflow has everything."""
        parquet_due = time.monotonic() + PARQUET_S
        finish_asked = was_ending = False
        while True:
            has_parent = self._has_parent()
            ending = finish_asked or not has_parent
            if ending or time.monotonic() >= parquet_due:
                began = time.monotonic()
                self._write_parquet()
                parquet_due = began + max(PARQUET_S, PARQUET_SHARE * (time.monotonic() - began))
            is_up_to_date = self._track(force=ending and not was_ending, last=finish_asked)
            if ending and (is_up_to_date or not has_parent):
                return is_up_to_date
            was_ending = ending
            finish_asked = self._wait_for_finish(POLL_S)

    def _track(self, *, force: bool, last: bool) -> bool:
        """Try to write new events; return whether MLflow has all of them.

        Args:
            force: Whether to try even during the wait after an outage.
            last: Whether to write the summary of the arms and the files of the sweep, too.
        """
        if time.monotonic() < self._not_before and not force:
            return False
        try:
            newest = self._ledger.last_seq()
            self._state = replace(self._state, newest=newest)
            inputs = read_inputs(self._folder)
            # The session lists the datasets after the start of this process.
            if self._writer is None or inputs != self._inputs:
                self._inputs = inputs
                self._writer = MlflowWriter(
                    self._uri,
                    self._plan,
                    self._ledger,
                    artifact_root(self._folder),
                    self._note_progress,
                    inputs=inputs,
                )
                collect_normally()  # restore usual garbage collection, since MLflow is imported now
                if self._state.error:
                    self._note(error="")  # MLflow responds again
            self._writer.update()
            if last and (summary := self._summary()) is not None:
                self._writer.publish(summary)
                self._writer.upload(self._folder)
        except StoreError as error:
            # MLflow may have executed part of the failed request. A new writer looks up which part.
            self._writer = None
            self._not_before = time.monotonic() + self._wait_s
            self._wait_s = min(2 * self._wait_s, BACKOFF_S[1])
            self._note(error=str(error), failed_at=time.time(), doing="")
            return False
        self._wait_s, position = BACKOFF_S[0], self._writer.position
        if (self._state.position, self._state.error, self._state.doing) != (position, "", ""):
            self._note(position=position, newest=max(newest, position), error="", doing="")
        return True

    def _write_parquet(self) -> None:
        self.parquet_behind = True
        try:
            self._parquet.update()
            self.parquet_behind = False
        except StoreError as error:
            print(error, file=sys.stderr, flush=True)

    def _note_progress(self, activity: str) -> None:
        """Store the current request to MLflow, which may take long, in the progress note."""
        if time.monotonic() - self._noted_at >= NOTE_S:
            self._noted_at = time.monotonic()
            self._note(doing=activity)

    def _note(self, **changes: Any) -> None:
        self._state = replace(self._state, at=time.time(), **changes)
        write_state(self._folder, self._state)


def main() -> int:
    """Run `python -m orchestrator.tracking.follower FOLDER PARENT_PID SUMMARY_FD`, with URLs in variables.

    Standard error is written to a file in the sweep's folder, so it is redacted.
    """
    with redacted_stderr():
        try:
            return _follow()
        except Exception:  # Python would print the exception without redaction
            traceback.print_exc()
            return 1


def _follow() -> int:
    parser = argparse.ArgumentParser(prog="orchestrator.tracking.follower")
    parser.add_argument("folder", type=Path)
    parser.add_argument("parent", type=int)
    parser.add_argument("summary", type=int)
    args = parser.parse_args()
    ledger_url, uri = os.environ[LEDGER_VARIABLE], os.environ[URI_VARIABLE]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    collect_rarely()
    folder = SweepFolder(args.folder)
    try:
        with projection_lock(folder.root, LOCK_WAIT_S), Ledger.open(ledger_url, folder.name) as ledger:
            requests = _StandardInput()

            def has_parent() -> bool:
                return os.getppid() == args.parent and not requests.detached

            summary = partial(read_summary, args.summary)
            loop = FollowerLoop(folder, ledger, uri, requests, has_parent, summary=summary)
            if not loop.run():
                return 1
            return PARQUET_BEHIND if loop.parquet_behind else 0
    except HaltsweepError as error:
        print(error, file=sys.stderr, flush=True)
        return 1


class _StandardInput:
    """Requests on standard input."""

    def __init__(self) -> None:
        self._finish_asked = False
        self.detached = False
        """Whether no process waits for the follower any more."""

    def __call__(self, seconds: float) -> bool:
        """Wait for up to `seconds` and return whether the follower is asked to finish."""
        if self.detached:
            time.sleep(seconds)
        elif select.select([sys.stdin], [], [], seconds)[0]:
            message = os.read(sys.stdin.fileno(), 64)
            self._finish_asked = True
            self.detached = not message or DETACH in message
        return self._finish_asked


if __name__ == "__main__":
    sys.exit(main())
