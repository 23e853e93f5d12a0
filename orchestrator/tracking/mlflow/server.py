"""Run MLflow's server as a child of this process, to display a store on this machine.

The server listens only on the loopback address, and its address contains a secret token.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from orchestrator.errors import InputError, StoreError
from orchestrator.files.redact import redact_url
from orchestrator.files.sqlite_files import url_for_mlflow

HOST = "127.0.0.1"
DEFAULT_PORT = 5000
START_S = 180.0
"""Maximum seconds until the server responds, on a machine that is busy with trials."""
END_S = 10.0
POLL_S = 0.1
LOG_CHARACTERS = 2000
PASSED_PREFIX = "MLFLOW_S3_"
"""Prefix of MLflow variables in the environment that are passed to the server."""
NO_STORE = 3
"""Exit code of a server that cannot use its store."""
MODULE = "orchestrator.tracking.mlflow.server_process"


@dataclass(frozen=True, slots=True)
class Server:
    """A running server that responds to requests."""

    url: str
    """Address with the token, which gives access to all functions of the server."""
    process: "subprocess.Popen[bytes]"
    log: IO[bytes]

    def wait(self) -> None:
        """Wait until the server ends by itself. Raise `StoreError` with its output."""
        self.process.wait()
        raise _ended_error(self.process, self.log)


@contextmanager
def serve_store(uri: str, artifacts: Path, port: int | None) -> Iterator[Server]:
    """Serve a store on the loopback address until the context ends.

    Args:
        uri: MLflow's URI of the store, a database.
        artifacts: Folder with files of runs that were written through a server.
        port: Port to listen on; None for the usual port, or a free one.

    Raises:
        InputError: The port is taken, or MLflow cannot use the store.
        StoreError: The server does not start.
    """
    token = secrets.token_urlsafe(32)
    with tempfile.TemporaryFile() as log:
        with listen(port) as listener:
            url = f"http://{HOST}:{listener.getsockname()[1]}/{token}/"
            process = subprocess.Popen(  # noqa: S603 - this interpreter and our own module  # nosec B603
                _command(),
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[listener.fileno()],
                start_new_session=True,  # Ctrl-C must reach only this process
            )
            settings = {
                "fd": listener.fileno(),
                "token": token,
                "uri": url_for_mlflow(uri),
                "artifacts": str(artifacts.resolve()),
            }
        try:
            assert process.stdin is not None, "it is started with a pipe"
            with suppress(BrokenPipeError), process.stdin as pipe:  # the end of the process is detected below
                pipe.write(json.dumps(settings).encode())
            _wait_until_healthy(url, uri, process, log)
            yield Server(url, process, log)
        finally:
            _end_server(process)


def listen(port: int | None) -> socket.socket:
    """Return a socket that listens on `port`; None selects the usual port, or a free one if that is taken.

    Raises:
        InputError: Listening on `port` fails.
    """
    try:
        return socket.create_server((HOST, DEFAULT_PORT if port is None else port))
    except OSError as error:
        if port is not None:
            raise InputError(
                f"--port {port}: cannot listen on {HOST}:{port} ({error.strerror}). Choose another --port."
            ) from error
        return socket.create_server((HOST, 0))


def _command() -> list[str]:
    return [sys.executable, "-m", MODULE]


def _environment() -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MLFLOW_") or name.startswith(PASSED_PREFIX)
    }
    return inherited | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def _wait_until_healthy(url: str, uri: str, process: "subprocess.Popen[bytes]", log: IO[bytes]) -> None:
    """Wait until the server responds."""
    # A proxy from the environment cannot reach the loopback address of this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask() -> None:
        if process.poll() == NO_STORE:
            raise InputError(
                f"--tracking {redact_url(uri)}: MLflow cannot use this store "
                f"({''.join(_tail(log).splitlines()[-1:]).rstrip('.')}). Choose another --tracking or --runs."
            )
        if process.poll() is not None:
            raise _ended_error(process, log)
        opener.open(f"{url}health", timeout=5).close()

    is_silent = retry_if_exception_type(OSError)
    try:
        Retrying(retry=is_silent, wait=wait_fixed(POLL_S), stop=stop_after_delay(START_S), reraise=True)(ask)
    except OSError as error:
        raise StoreError(
            f"MLflow's server must answer within {START_S:g} s, got {error}; output:\n{_tail(log)}"
        ) from error


def _ended_error(process: "subprocess.Popen[bytes]", log: IO[bytes]) -> StoreError:
    return StoreError(
        f"MLflow's server ended unexpectedly with code {process.returncode}; its output:\n{_tail(log)}"
    )


def _tail(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - LOG_CHARACTERS))
    return log.read().decode(errors="replace").strip()


def _end_server(process: "subprocess.Popen[bytes]") -> None:
    """Terminate the server, and kill its remaining processes."""
    if process.poll() is None:
        process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    with suppress(ProcessLookupError):  # no process is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
