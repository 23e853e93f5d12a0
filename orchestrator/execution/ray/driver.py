"""Start, watch and end the Ray driver, a child process of the launching process.

The launching process does not load Ray. Ray may end its own process, some of its calls never return after a
server has died, and it prints to standard output.

The child receives a `DriverOrder`. It then sends calls of `Session` as tuples of method name and arguments,
and the launching process answers each call. The last message is a `DriverEnd`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from orchestrator.errors import HaltsweepError
from orchestrator.execution.ray.environment import ray_environment
from orchestrator.execution.ray.node_check import NodeRequirements
from orchestrator.execution.trial.trial_jobs import JobEncoder
from orchestrator.files.abandoned_folders import RAY, clear_abandoned, short_folder
from orchestrator.spec.section import Resources
from trainables.process_identity import process_label

SERVER_CHECK_S = 0.5
"""Seconds between two checks of Ray's servers."""
EXIT_WAIT_S = 20.0
"""Seconds that the driver has to exit after its last message."""
SERVER_NAMES = frozenset({"gcs_server", "raylet"})
"""Names of server processes that a driver with a private Ray starts and needs."""


@dataclass(frozen=True, slots=True)
class DriverOrder:
    """Trials for a driver to run, and the Ray to run them on."""

    resources: Resources
    address: str | None = None
    """Address of an existing cluster; None to start a Ray on this machine."""
    needs: NodeRequirements | None = None
    """Requirements that every node of an existing cluster must meet."""
    orders: JobEncoder | None = None
    """Encoder of the trials; None to check the cluster and exit."""
    num_cpus: int | None = None


@dataclass(frozen=True, slots=True)
class DriverEnd:
    """Last message of a driver."""

    error: str = ""
    """Error that ended the driver early; empty if the driver finished its work."""
    kind: type[HaltsweepError] | None = None
    """Class of the error; None for an error of Ray."""


class RayDriver:
    """Driver process. Leaving the context kills it with all processes of its private Ray."""

    def __init__(self, order: DriverOrder, log: Path | None) -> None:
        """Prepare a driver without starting it.

        Args:
            order: Trials for the driver to run, and the Ray cluster to run them on.
            log: File for output of Ray; None to discard output.
        """
        self.is_ending = False
        """Whether the driver has sent its last message and exits by itself."""
        self._order, self._log = order, log
        self._servers: dict[psutil.Process, str] = {}
        self._checked_at = time.monotonic()

    def __enter__(self) -> Self:
        clear_abandoned()
        self._scratch = Path(tempfile.mkdtemp(prefix=f"{RAY}{process_label()}-", dir=short_folder()))
        self._connection, child_end = Pipe()
        environment = {**os.environ, **ray_environment(private=self._order.address is None)}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        module = "orchestrator.execution.ray.driver_main"
        with child_end, Path(self._log or os.devnull).open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module  # nosec B603
                [sys.executable, "-P", "-m", module, str(child_end.fileno()), str(self._scratch)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[child_end.fileno()],
                start_new_session=True,  # Ctrl-C must reach only the launching process
                env=environment,
            )
        self._connection.send(self._order)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.is_ending:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(EXIT_WAIT_S)
        self._connection.close()
        self._process.kill()
        _kill_session(self._process.pid)
        self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def poll(self, timeout_s: float) -> bool:
        """Return whether a message arrives, or the driver ends, within the timeout."""
        return self._connection.poll(timeout_s)

    def receive(self) -> Any:
        """Return the next message; a `DriverEnd` with an error if the process died."""
        try:
            message = self._connection.recv()
        except (EOFError, OSError):
            return DriverEnd(self._describe_dead_server() or "its driver ended")
        self.is_ending = isinstance(message, DriverEnd)
        if not self._servers and self._order.address is None:
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(self._process.pid).children()
                self._servers = {child: name for child in children if (name := child.name()) in SERVER_NAMES}
        return message

    def answer(self, value: Any) -> None:
        """Send the return value of a call to the driver."""
        with suppress(OSError):  # `receive` notices that the driver has died
            self._connection.send(value)

    def dead_server(self) -> str:
        """Return a description of a dead server of a private Ray.

        The result is empty if all servers live, or if the last check was less than `SERVER_CHECK_S` seconds
        ago.
        """
        if time.monotonic() - self._checked_at < SERVER_CHECK_S:
            return ""
        self._checked_at = time.monotonic()
        return self._describe_dead_server()

    def _describe_dead_server(self) -> str:
        for server, name in self._servers.items():
            if not _is_alive(server):
                return f"its {name} (process {server.pid}) is gone"
        return ""


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _kill_session(leader: int) -> None:
    """Kill every process of a process session, twice, since a process may start another before its end."""
    for _ in range(2):
        for pid in psutil.pids():
            with suppress(OSError):
                if os.getsid(pid) == leader:
                    os.kill(pid, 9)
