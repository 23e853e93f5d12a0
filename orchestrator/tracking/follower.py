"""The background writer: a process of its own that keeps MLflow and Parquet up to date with the ledger.

Neither MLflow's time nor its failures reach the process that runs the sweep. Told to on its standard input,
it writes what is in the ledger and what the report says of the arms, and ends; where Parquet could not be
written last, its exit code says so to the parent, which then does it. If its parent is gone, waits no longer,
or is stopped and has lost the sweep, it tries once to write what is in the ledger. Whoever comes next catches
up.
"""

import argparse
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import psutil

from orchestrator.errors import HaltsweepError, StoreError
from orchestrator.files.redact import redact_url, redacted_stderr
from orchestrator.garbage import look_as_usual, look_seldom
from orchestrator.identity import SweepFolder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import read_plan
from orchestrator.tracking.background import DETACH, LEDGER_VARIABLE, PARQUET_BEHIND, URI_VARIABLE
from orchestrator.tracking.inputs import read_inputs
from orchestrator.tracking.mlflow.mlflow_writer import MlflowWriter
from orchestrator.tracking.parquet import ParquetFiles
from orchestrator.tracking.state import TrackingState, projection_lock, write_state
from orchestrator.tracking.summary import ArmSummary, read_summary
from orchestrator.tracking.sync import artifact_root

POLL_S = 0.3
"""Between two looks at the ledger: a run gets at most one request in so long."""
PARQUET_S = 30.0
PARQUET_SHARE = 20
"""Parquet takes at most one part in so many of the follower's time."""
BACKOFF_S = (1.0, 60.0)
"""First and longest wait after an outage."""
NOTE_S = 0.5
"""Least time between two notes of what MLflow is asked for."""
LOCK_WAIT_S = 600.0
NICENESS = 5


class FollowerLoop:
    """Follows one sweep.

    `finish_asked(seconds)` waits so long and says whether to finish; `parent_lives` whether anybody waits for
    that; `summary` what there is to write then beside what is in the ledger.
    """

    def __init__(
        self,
        folder: SweepFolder,
        ledger: Ledger,
        uri: str,
        finish_asked: Callable[[float], bool],
        parent_lives: Callable[[], bool],
        *,
        summary: Callable[[], ArmSummary | None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._ledger = ledger
        self._uri = uri
        self._finish_asked = finish_asked
        self._parent_lives = parent_lives
        self._summary = summary
        self._plan = read_plan(folder)
        self._parquet = ParquetFiles(folder, self._plan, ledger)
        self._writer: MlflowWriter | None = None
        self._position = self._newest = 0
        self._noted_at = float("-inf")
        self._error, self._failed_at = "", 0.0
        self._wait_s, self._not_before = BACKOFF_S[0], 0.0
        self._noted: tuple[int, str] | None = None
        self._wrote_early = False
        self.parquet_behind = False
        """Whether the last attempt at the Parquet files failed."""

    def run(self) -> bool:
        """Write until asked to finish and all is written, or the parent is gone; whether MLflow has all.

        MLflow is closed then: of a database in a file all is in that file, and nothing in a log beside it.
        """
        try:
            return self._run()
        finally:
            self._let_go()

    def _run(self) -> bool:
        parquet_due = time.monotonic() + PARQUET_S
        finish_asked = forced = False
        while True:
            lives = self._parent_lives()
            ending = finish_asked or not lives
            written = self._track(force=ending and not forced, last=finish_asked)
            forced = forced or ending
            if ending or time.monotonic() >= parquet_due:
                parquet_due = time.monotonic() + max(PARQUET_S, PARQUET_SHARE * self._write_parquet())
            if ending and (written or not lives):
                return written
            finish_asked = self._finish_asked(POLL_S)

    def _track(self, *, force: bool, last: bool) -> bool:
        """Try to write what is new; whether MLflow has all of it. After an outage waits unless `force`.

        The `last` time the arms' summary is there to be written, and the files of the sweep with it.
        """
        if time.monotonic() < self._not_before and not force:
            return False
        try:
            self._newest = self._ledger.last_seq()
            if self._writer is None:
                artifacts = artifact_root(self._folder)
                inputs = read_inputs(self._folder)
                self._writer = MlflowWriter(
                    self._uri, self._plan, self._ledger, artifacts, self._asking, inputs=inputs
                )
                look_as_usual()  # MLflow is imported
                if self._error:
                    self._error = ""
                    self._write_note("")  # it answers again
            self._writer.update()
            if last and (summary := self._summary()) is not None:
                self._writer.publish(summary)
                self._writer.upload(self._folder)
        except StoreError as error:
            # What the store took of the failed request is unknown: the next writer looks.
            self._let_go()
            self._not_before = time.monotonic() + self._wait_s
            self._wait_s = min(2 * self._wait_s, BACKOFF_S[1])
            self._note(str(error))
            return False
        self._wait_s = BACKOFF_S[0]
        self._position = self._writer.position
        self._newest = max(self._newest, self._position)
        self._note("")
        return True

    def _let_go(self) -> None:
        # A database in a file is looked at before it is opened again, and a process that closes a file has no
        # lock on it any more: what is still open would go on without.
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def _write_parquet(self) -> float:
        """Seconds it took."""
        began = time.monotonic()
        self.parquet_behind = True
        try:
            self._parquet.update()
            self.parquet_behind = False
        except StoreError as error:
            print(error, file=sys.stderr, flush=True)
        return time.monotonic() - began

    def _asking(self, what: str) -> None:
        """MLflow will be asked for something, which may take long."""
        if not self._wrote_early and self._finish_asked(0.0):
            # The trials have ended, and readers of these files need not wait for MLflow.
            self._wrote_early = True
            self._write_parquet()
        now = time.monotonic()
        if now - self._noted_at >= NOTE_S:
            self._noted_at = now
            self._noted = None
            self._write_note(what)

    def _note(self, error: str) -> None:
        # Every failed attempt leaves its time: who waits for the end must tell a new outage from an old one.
        if error or self._noted != (self._position, error):
            self._noted = (self._position, error)
            self._error = error
            if error:
                self._failed_at = time.time()
            self._write_note("")

    def _write_note(self, doing: str) -> None:
        state = TrackingState(
            position=self._position,
            error=self._error,
            at=time.time(),
            newest=self._newest,
            doing=doing,
            failed_at=self._failed_at,
            store=redact_url(self._uri),
        )
        write_state(self._folder, state)


def main() -> int:
    """`python -m orchestrator.tracking.follower FOLDER PARENT_PID SUMMARY_FD [TOKEN]`, URLs in variables.

    What is written to standard error is kept in the sweep's folder, for all to read: no password gets there.
    """
    with redacted_stderr():
        try:
            return _follow()
        except Exception:  # what Python would print after us, it would print as it is
            traceback.print_exc()
            return 1


def _follow() -> int:
    parser = argparse.ArgumentParser(prog="orchestrator.tracking.follower")
    parser.add_argument("folder", type=Path)
    parser.add_argument("parent", type=int)
    parser.add_argument("summary", type=int)
    parser.add_argument("token", type=int, nargs="?")
    args = parser.parse_args()
    ledger_url, uri = os.environ[LEDGER_VARIABLE], os.environ[URI_VARIABLE]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    look_seldom()
    folder = SweepFolder(args.folder)
    try:
        with projection_lock(folder.root, LOCK_WAIT_S), Ledger.open(ledger_url, folder.name) as ledger:
            asked = _StandardInput()

            def is_followed() -> bool:
                is_parent = os.getppid() == args.parent and not asked.detached
                return is_parent and not _is_fenced(ledger, args.parent, args.token)

            loop = FollowerLoop(
                folder,
                ledger,
                uri,
                asked,
                is_followed,
                summary=lambda: read_summary(args.summary),
            )
            if not loop.run():
                return 1
            return PARQUET_BEHIND if loop.parquet_behind else 0
    except HaltsweepError as error:
        print(error, file=sys.stderr, flush=True)
        return 1


def _is_fenced(ledger: Ledger, parent: int, token: int | None) -> bool:
    """Return whether the parent is stopped, and another session has taken the sweep from its `token`.

    A parent that runs ends its follower by itself.
    """
    try:
        if token is None or psutil.Process(parent).status() != psutil.STATUS_STOPPED:
            return False
        lease = ledger.lease()
    except (psutil.Error, StoreError):  # it is gone, or an outage, which the next attempt to write reports
        return False
    return lease is not None and lease.token != token


class _StandardInput:
    """Whether anything, or the end, has come in on standard input."""

    def __init__(self) -> None:
        self._finish_asked = False
        self.detached = False
        """Whether nobody waits any more."""

    def __call__(self, seconds: float) -> bool:
        if self.detached:
            time.sleep(seconds)
        elif select.select([sys.stdin], [], [], seconds)[0]:
            said = os.read(sys.stdin.fileno(), 64)
            self._finish_asked = True
            self.detached = not said or DETACH in said
        return self._finish_asked


if __name__ == "__main__":
    sys.exit(main())
