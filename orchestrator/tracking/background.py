"""Starts, ends and watches the follower. Light: the launcher imports this and neither MLflow nor pyarrow."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from orchestrator.files.redact import redact_url
from orchestrator.identity import SweepFolder
from orchestrator.tracking.mlflow.mlflow_runs import check_uri
from orchestrator.tracking.state import TrackingState, read_state, write_state
from orchestrator.tracking.summary import ArmSummary, SummaryFile

LOG = "tracking.log"
LEDGER_VARIABLE = "HALTSWEEP_FOLLOWER_LEDGER"
URI_VARIABLE = "HALTSWEEP_FOLLOWER_URI"
PARQUET_BEHIND = 3
"""Exit code of a follower that has written all to MLflow and could not write the Parquet files."""
DETACH = b"d"
"""Byte on the follower's standard input: nobody waits for it any more, so it ends by itself."""
OUTAGE_S = 5.0
POLL_S = 0.1
MOST_RESTARTS = 5
"""How often a follower that died is started again, one soon after the other."""
RESTART_S = 1.0
"""Wait before the first restart; each further one takes twice as long."""
HEALTHY_S = 600.0
"""Who lived so long did not die of what it is there for: the restarts count anew."""

OnWait = Callable[[str], None]
"""Called often while MLflow is waited for, with what is being waited for."""


class Follower:
    """A follower that this process started, and starts again, a few times, when it is killed."""

    def __init__(
        self,
        start: Callable[[], "subprocess.Popen[bytes]"],
        folder: SweepFolder,
        store: str,
        summary: SummaryFile,
    ) -> None:
        """`store` is the MLflow it writes, without passwords; asked to finish, it reads `summary`."""
        self._start = start
        self._folder = folder
        self._store = store
        self._summary = summary
        self._process = start()
        self._began = time.monotonic()
        self._restarts = 0
        self.detached = False
        """Whether it still writes, and nobody waits for it any more."""
        self._ending = threading.Event()
        self._watch = threading.Thread(target=self._keep_alive, name="follower", daemon=True)
        self._watch.start()

    @property
    def pid(self) -> int:
        """Process id of the one that runs now."""
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
        """Have it write all that is in the ledger, and end; None if MLflow has it, else how far it came.

        With a `summary` it writes that and the files of the sweep too, the report among them.
        Call it after the sweep was closed and its lease released. A follower that is not ready in time goes
        on by itself (`detached`). One that after `outage_s` has nothing to tell but an outage of MLflow is
        killed; `haltsweep sync` catches up. So it is on Ctrl-C, which is not raised: what was left then is
        the reason.
        """
        why = ""
        try:
            if summary is not None:
                self._summary.write(summary)
            self._finish(timeout_s, outage_s, waiting)
        except KeyboardInterrupt:
            why = "left at Ctrl-C"
        finally:
            if not self.detached:
                self.kill()
        if not self.detached and (self._process.returncode == 0 or self.parquet_behind):
            return None
        noted = read_state(self._folder)
        state = noted or TrackingState(0, "", time.time())
        if self.detached or why:
            return replace(state, error=f"{why and f'{why}: '}{_doing(noted)}")
        early = f"the background writer ended before all was written; see {self._folder.root / LOG}"
        return replace(state, error=state.error or early)

    def kill(self) -> None:
        """End it at once, and for good; nothing is lost."""
        self._rest()
        self._process.kill()
        self._process.wait()
        self._let_go()

    def _detach(self) -> None:
        """Let it go on without this process, for good."""
        self.detached = True
        self._tell(DETACH)
        self._let_go()
        # If this process lives on, as a notebook does, it reads the exit code, or a zombie would be left.
        threading.Thread(target=self._process.wait, name="detached follower", daemon=True).start()

    def _let_go(self) -> None:
        if self._process.stdin is not None:
            # What was buffered for a dead process cannot be delivered.
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._summary.close()

    def _finish(self, timeout_s: float, outage_s: float, waiting: OnWait) -> None:
        """Wait until it has ended, tells of an outage, or is left after `timeout_s`."""
        self._rest()
        # Times of the follower are compared with each other only: the system's clock may be set meanwhile.
        before, began = _failed_at(read_state(self._folder)), time.monotonic()
        failed_s: float | None = None
        self._tell()
        while (waited := time.monotonic() - began) < timeout_s:
            if (code := self._process.poll()) is not None:
                # What failed by itself would fail again; what was killed would not.
                if code >= 0 or not self._again():
                    return
                self._tell()
            state = read_state(self._folder)
            # One that answers again is written to, however long that takes.
            failing = state is not None and state.error and _failed_at(state) != before
            failed_s = failed_s or waited if failing else None
            if failed_s is not None and waited - failed_s >= outage_s:
                return
            waiting(_doing(state))
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(POLL_S)
        self._detach()

    def _tell(self, what: bytes = b"\n") -> None:
        """Have it finish, by a byte: of the end of the pipe a forked child may hold another end open."""
        pipe = self._process.stdin
        assert pipe is not None, "a follower is started with a pipe to be asked by"
        with contextlib.suppress(OSError):
            pipe.write(what)
            pipe.flush()

    def _rest(self) -> None:
        """No more restarts from the watching thread."""
        self._ending.set()
        self._watch.join()

    def _keep_alive(self) -> None:
        while not self._ending.wait(POLL_S):
            if self._process.poll() is not None and not self._again():
                if not self._ending.is_set():
                    self._note_end()
                return

    def _note_end(self) -> None:
        """For `status`: nobody follows any more."""
        now = time.time()
        state = read_state(self._folder) or TrackingState(0, "", now, store=self._store)
        died = (
            f"the background writer died {1 + self._restarts} times in a row; see {self._folder.root / LOG}"
        )
        write_state(self._folder, replace(state, error=died, doing="", at=now))

    def _again(self) -> bool:
        """Start it anew after a pause; False if that has been done too often, or is not wanted any more."""
        if time.monotonic() - self._began >= HEALTHY_S:
            self._restarts = 0
        if self._restarts == MOST_RESTARTS:
            return False
        pause = RESTART_S * 2**self._restarts
        if self._ending.is_set():
            time.sleep(pause)
        elif self._ending.wait(pause):
            return False
        self._restarts += 1
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process, self._began = self._start(), time.monotonic()
        except OSError:  # the folder is gone, or the machine is full: nobody can follow
            return False
        return True


def _failed_at(state: TrackingState | None) -> float:
    return 0.0 if state is None else state.failed_at


def _doing(state: TrackingState | None) -> str:
    return "starting" if state is None else state.waited_for(time.time())


def start_follower(folder: SweepFolder, ledger_url: str, uri: str, token: int | None = None) -> Follower:
    """Follow `ledger_url` into the MLflow at `uri`, in the background, until drained or this process is gone.

    The plan must be in the folder and the sweep in the ledger. It ends if this process is stopped and
    another session takes the sweep from the fencing `token`. Raises InputError for a file store.
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
        *([] if token is None else [str(token)]),
    ]

    def start() -> "subprocess.Popen[bytes]":
        with (folder.root / LOG).open("ab") as log:
            # A session of its own: Ctrl-C is for the launcher, which closes the sweep and waits for this one.
            return subprocess.Popen(  # noqa: S603 - our own interpreter and module  # nosec B603
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(summary.fd,),
                # Not as arguments, which every user of the machine can read: they may hold passwords.
                env={**os.environ, LEDGER_VARIABLE: ledger_url, URI_VARIABLE: uri},
            )

    return Follower(start, folder, redact_url(uri), summary)
