"""A process with Ray's driver in it, seen from the launching process: started, watched, and surely ended."""

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from multiprocessing.connection import Pipe
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from orchestrator.execution.ray.pipe import Begin, Connected
from orchestrator.execution.ray.ray_settings import ray_environment

WATCH_S = 0.5
"""Time between two looks at Ray's processes."""
HEAD_EVERY_S, HEAD_ANSWER_S, HEAD_GONE_S = 2.0, 2.0, 20.0
"""How often the head of a cluster is asked for, how long it may take to answer, and how long not to."""
LEAVE_S = 20.0
"""How long Ray is given to end by itself."""
MODULE = "orchestrator.execution.ray.ray_process"


class RayChild:
    """Ray's driver while it is open. Everything of it, its servers and workers, is ended on leaving.

    What belongs to a cluster that is not ours ends by itself, for its driver is gone.
    """

    def __init__(self, begin: Begin, log: Path | None) -> None:
        self.gently = False
        """Whether it ends by itself."""
        self._begin = begin
        self._log = log
        self._servers: dict[str, psutil.Process] = {}
        self._scratch: Path | None = None
        self._head: tuple[str, int] | None = None
        self._looked_at = self._answered_at = time.monotonic()

    def __enter__(self) -> Self:
        self._connection, theirs = Pipe()
        with ExitStack() as stack:
            stack.enter_context(theirs)
            output: Any = subprocess.DEVNULL
            if self._log is not None:
                output = stack.enter_context(self._log.open("ab"))
            stack.enter_context(ray_environment(private=self._begin.address is None))
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module  # nosec B603
                [sys.executable, "-P", "-m", MODULE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                # A session of its own: Ctrl-C is for this process, and whatever is in the session is Ray's.
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._connection.send(self._begin)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.gently:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(LEAVE_S)
        self._connection.close()
        self._process.kill()
        _kill_session(self._process.pid)
        self._process.wait()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def poll(self, wait_s: float) -> bool:
        """Whether something was said, or the process ended, within `wait_s` seconds."""
        return self._connection.poll(wait_s)

    def take(self) -> Any:
        """What was said; None if the process ended."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            return None

    def answer(self, value: Any) -> None:
        """Reply to a call."""
        with suppress(OSError):  # its end is noticed elsewhere
            self._connection.send(value)

    def connected(self, message: Connected) -> None:
        """From now on what Ray needs is watched."""
        self._scratch = message.scratch
        for name, pid in message.servers.items():
            with suppress(psutil.NoSuchProcess):
                self._servers[name] = psutil.Process(pid)
        if message.head is not None:
            host, _, port = message.head.rpartition(":")
            self._head, self._answered_at = (host.strip("[]"), int(port)), time.monotonic()

    def died(self) -> str:
        """Which part of Ray is gone; empty while none is, or none was looked at lately."""
        now = time.monotonic()
        if now - self._looked_at < (HEAD_EVERY_S if self._head else WATCH_S):
            return ""
        self._looked_at = now
        for name, process in self._servers.items():
            if not _alive(process):
                return f"its {name} (process {process.pid}) is gone"
        if self._head is None or _answers(self._head):
            self._answered_at = time.monotonic()
            return ""
        quiet_s = time.monotonic() - self._answered_at
        return f"its head has not answered for {quiet_s:.0f} s" if quiet_s > HEAD_GONE_S else ""


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _answers(head: tuple[str, int]) -> bool:
    try:
        socket.create_connection(head, HEAD_ANSWER_S).close()
    except OSError:
        return False
    return True


def _kill_session(leader: int) -> None:
    """Kill every process of a session. Twice, for one may have started another meanwhile."""
    for _ in range(2):
        for pid in psutil.pids():
            with suppress(OSError):
                if os.getsid(pid) == leader:
                    os.kill(pid, 9)
