"""MLflow's own server as a child of this process, for looking at a store on this machine.

It listens on the loopback address alone: it asks nobody who they are.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from orchestrator.errors import InputError, StoreError
from orchestrator.sqlite_files import url_for_mlflow

HOST = "127.0.0.1"
USUAL_PORT = 5000
START_S = 180.0
"""Most that importing MLflow may take, on a machine that is busy with trials."""
END_S = 10.0
POLL_S = 0.1
LOG_CHARACTERS = 2000
KEPT = "MLFLOW_S3_"
"""Settings of MLflow in the environment that its server needs; all others are ours to choose."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers."""

    url: str
    process: "subprocess.Popen[bytes]"
    log: IO[bytes]

    def wait(self) -> None:
        """Until it ends by itself, which it should not. Raises StoreError with what it said."""
        self.process.wait()
        raise _ended(self.process, self.log)


@contextmanager
def serving_anywhere(uri: str, artifacts: Path, wanted: int | None) -> Iterator[Server]:
    """As `serving`, on the port that is `wanted`, else on one that is free.

    One that another program took while the server was starting is left to it, if it was not asked for.
    Raises InputError if the port that is wanted is taken.
    """
    port = choose_port(wanted)
    with ExitStack() as stack:
        try:
            server = stack.enter_context(serving(uri, artifacts, port))
        except StoreError:
            if wanted is not None or _free(port):
                raise
            server = stack.enter_context(serving(uri, artifacts, choose_port(None)))
        yield server


@contextmanager
def serving(uri: str, artifacts: Path, port: int) -> Iterator[Server]:
    """Serve the store at `uri` on `port` of the loopback address; afterwards no process is left.

    `artifacts` holds files of runs that went through a server. Raises StoreError if it does not start.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 - this interpreter, and a port  # nosec B603
            _command(port),
            env=_environment(uri, artifacts),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its processes are ended together, and no Ctrl-C reaches it past us
        )
        try:
            _wait_until_healthy(port, process, log)
            yield Server(_url(port), process, log)
        finally:
            _end(process)


def choose_port(wanted: int | None) -> int:
    """`wanted`, else the usual port, else any that is free. Raises InputError if `wanted` is not free."""
    if wanted is not None:
        if not _free(wanted):
            raise InputError(f"the port must be free, and {HOST}:{wanted} is taken; choose another --port")
        return wanted
    if _free(USUAL_PORT):
        return USUAL_PORT
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _free(port: int) -> bool:
    try:
        with socket.create_server((HOST, port)):
            return True
    except OSError:
        return False


def _command(port: int) -> list[str]:
    return [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"]


def _environment(uri: str, artifacts: Path) -> dict[str, str]:
    # The store goes by the environment: its URL may hold a password, and everybody can list command lines.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MLFLOW_") or name.startswith(KEPT)
    }
    return inherited | {
        "MLFLOW_BACKEND_STORE_URI": url_for_mlflow(uri),
        "MLFLOW_ARTIFACTS_DESTINATION": str(artifacts.resolve()),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }


def _url(port: int) -> str:
    return f"http://{HOST}:{port}"


def _wait_until_healthy(port: int, process: "subprocess.Popen[bytes]", log: IO[bytes]) -> None:
    """Until the server of `process` answers; another may have taken the port while this one was starting."""
    deadline = time.monotonic() + START_S
    # A proxy of the environment knows nothing of this machine's loopback address.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        if process.poll() is not None:
            raise _ended(process, log)
        error: OSError | None = None
        try:
            with opener.open(f"{_url(port)}/health", timeout=5):
                if _listens(process, port):
                    return
        except OSError as caught:
            error = caught
        if time.monotonic() > deadline:
            found = error or "the answer of another program on its port"
            raise StoreError(
                f"MLflow's server must answer within {START_S:g} s, got {found}; it said:\n{_tail(log)}"
            ) from error
        time.sleep(POLL_S)


def _listens(process: "subprocess.Popen[bytes]", port: int) -> bool:
    """Whether `process` or a child of it listens on `port`."""
    try:
        leader = psutil.Process(process.pid)
        family = [leader, *leader.children(recursive=True)]
        sockets = [each for member in family for each in member.net_connections("tcp")]
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:  # systems that hide the sockets of one's own processes
        return True
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in sockets)


def _ended(process: "subprocess.Popen[bytes]", log: IO[bytes]) -> StoreError:
    return StoreError(
        f"MLflow's server must run until it is asked to end, and ended with code {process.returncode}; "
        f"it said:\n{_tail(log)}"
    )


def _tail(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - LOG_CHARACTERS))
    return log.read().decode(errors="replace").strip()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the server and all it started: asked first, then made to."""
    if process.poll() is None:
        process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    with suppress(ProcessLookupError):  # nobody is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
