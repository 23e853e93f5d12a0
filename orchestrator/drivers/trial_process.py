"""A slot: runs one trial after the other, each in a child process of its own.

A slot owns a trial server (`trial_server`), a clean process that has imported the trainable and forks once for
each trial. Whatever a trial does to its process ends with the process: it reaches neither the driver nor
another trial.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Protocol

from orchestrator.conductor.messages import Reply
from orchestrator.drivers.jobs import WorkerJob
from orchestrator.drivers.trial_messages import (
    Answer,
    ChildDied,
    ChildEnded,
    KillChild,
    ServerReady,
    ServerSettings,
)
from orchestrator.spec.section import threads_of
from orchestrator.trials import Outcome, OutcomeKind

MODULE = "orchestrator.drivers.trial_server"
END_S = 15.0
"""How long a server may take to end its trial and itself."""


class Slot(Protocol):
    """Runs one trial at a time. A driver calls `start`, then `next` and `answer` in turn."""

    def start(self, order: WorkerJob) -> None:
        """Begin a trial, after the one before has ended or was killed."""

    def next(self, timeout_s: float) -> Reply | ChildDied | None:
        """What the trial did next; None if nothing happened for so long. Raises Unreachable."""

    def answer(self, answer: Answer) -> None:
        """Let the trial go on after a reply that was not its end."""

    def kill(self) -> None:
        """End the process of the trial and all of its descendants."""

    def close(self) -> None:
        """End everything of the slot."""


def server_settings(workload: str, launch_folder: Path, cpus: float, gpus: float | None) -> ServerSettings:
    """Settings of a server in this process's environment.

    Args:
        workload: `module:name` of the trainable.
        launch_folder: Folder from which the sweep was launched.
        cpus: Cores of a trial; its libraries use as many threads.
        gpus: GPUs of a trial; 0 hides all of them, None leaves them as they are.
    """
    threads = str(threads_of(cpus))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = dict.fromkeys(names, threads)
    # Otherwise torch.cuda.is_available() would initialise CUDA, after which a process cannot fork.
    environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    if gpus == 0:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    here = str(Path.cwd())
    return ServerSettings(workload, tuple(each or here for each in sys.path), launch_folder, environment)


def start_server(connection: Connection) -> "subprocess.Popen[bytes] | None":
    """Start a fresh interpreter that serves trials on the other end of `connection`."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from {MODULE} import main; main({connection.fileno()})"
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module  # nosec B603
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[connection.fileno()],
        # Ctrl-C is for the driver, which saves running trials.
        start_new_session=True,
    )


class ProcessSlot:
    """A slot whose trials run in child processes of a trial server."""

    starter: Callable[[Connection], "subprocess.Popen[bytes] | None"] = staticmethod(start_server)

    def __init__(self, settings: ServerSettings) -> None:
        """Start the server, which imports the trainable in the background."""
        self._settings = settings
        self.owes_checkpoint = False
        """Whether the trial waits with a checkpoint until everything that it reported is in the ledger."""
        self._control: Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._trial: Connection | None = None
        self._is_running = False
        self._has_ended = False
        self._begin()

    def _begin(self) -> None:
        self._control, theirs = Pipe()
        with theirs:
            self._process = self.starter(theirs)
        with suppress(OSError):  # a server that died is noticed when it is read from
            self._control.send(self._settings)

    def start(self, order: WorkerJob) -> None:
        """Begin a trial, after the one before has ended or was killed."""
        self._await_end()
        if self._control is None:
            self._begin()
        assert self._control is not None, "a server was started"
        self._trial, theirs = Pipe()
        self._is_running, self._has_ended = True, False
        with theirs, suppress(OSError):
            self._control.send(order)
            send_handle(self._control, theirs.fileno(), None)

    def next(self, timeout_s: float) -> Reply | ChildDied | None:
        """What the trial did next; None if nothing happened for so long.

        Raises:
            Unreachable: The trial cannot begin, since the store of its checkpoints does not answer.
        """
        until = time.monotonic() + timeout_s
        while True:
            assert self._control is not None, "a trial was started"
            sources = [each for each in (self._trial, self._control) if each is not None]
            ready = wait(sources, max(0.0, until - time.monotonic()))
            if self._trial in ready:
                if (reply := self._received()) is not None:
                    return reply
            elif self._control in ready:
                if (died := self._server_said()) is not None:
                    return died
            elif time.monotonic() >= until:
                return None

    def _received(self) -> Reply | None:
        assert self._trial is not None, "there is something to read"
        try:
            reply, self.owes_checkpoint = self._trial.recv()
        except (EOFError, OSError):  # the server will say how the process ended
            self._close_trial()
            return None
        if isinstance(reply, BaseException):
            self._has_ended = True
            raise reply
        assert isinstance(reply, Reply), "trials send replies alone"
        self._has_ended = reply.ended is not None
        return reply

    def _server_said(self) -> ChildDied | None:
        assert self._control is not None, "there is something to read"
        try:
            message = self._control.recv()
        except (EOFError, OSError):
            self._let_go_of_server()
            message = ChildEnded(-signal.SIGKILL)
        if isinstance(message, ServerReady):
            return None
        self._is_running = False
        self._close_trial()
        return None if self._has_ended else self._died(message.exit_code)

    def _died(self, exit_code: int) -> ChildDied:
        self._has_ended = True
        if exit_code >= 0:
            reason = (
                f"the training code ended its process with exit code {exit_code}, as os._exit does; a trial "
                "must return from its training function or raise an exception"
            )
            return ChildDied(reason, Outcome(OutcomeKind.CRASHED, reason))
        name = signal.Signals(-exit_code).name
        hint = "; the system sends it when memory runs out" if name == "SIGKILL" else ""
        return ChildDied(f"the trial's process was ended by {name}{hint}")

    def answer(self, answer: Answer) -> None:
        """Let the trial go on after a reply that was not its end."""
        if self._trial is not None:
            with suppress(OSError):  # how its process ended is noticed elsewhere
                self._trial.send(answer)

    def kill(self) -> None:
        """End the process of the trial and all of its descendants."""
        if self._is_running and self._control is not None:
            self._has_ended = True
            with suppress(OSError):
                self._control.send(KillChild())
            self._await_end()

    def close(self) -> None:
        """End everything of the slot."""
        self._close_trial()
        self._let_go_of_server()

    def _await_end(self) -> None:
        """Read until the process of the last trial is gone."""
        until = time.monotonic() + END_S
        self._has_ended = True
        while self._is_running and self._control is not None:
            if not self._control.poll(max(0.0, until - time.monotonic())):
                self._let_go_of_server()
            else:
                self._server_said()

    def _close_trial(self) -> None:
        trial, self._trial = self._trial, None
        if trial is not None:
            trial.close()

    def _let_go_of_server(self) -> None:
        """The server ends its trial, all descendants and itself when nobody is connected any more."""
        control, self._control = self._control, None
        process, self._process = self._process, None
        self._is_running = False
        if control is not None:
            with suppress(OSError):
                control.send(None)
            control.close()
        if process is None:
            return
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
