"""A real MLflow server that tests can stop, kill and start again."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

START_S = 300.0
"""Timeout of a start, which takes seconds, or minutes on a busy machine."""


class Server:
    """`mlflow server` on a free port."""

    def __init__(self, database: Path, artifacts: Path, *, password: str | None = None) -> None:
        """Create a stopped server; with a `password` it requires a login as `admin`."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self._database, self._artifacts, self._password = database, artifacts, password
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Id of the first process; None if the server is not running."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the server and wait until it answers; restart it if it ends, as when its port is taken."""
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert time.monotonic() < deadline, f"the server must answer within {START_S:.0f} s"
            if self._process is None or self._process.poll() is not None:
                self._process = self._start_process()
            time.sleep(0.2)

    def _start_process(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.support.mlflow.mlflow_serving"]
        command += ["--port", str(self.port), "--workers", "1"]
        command += [
            "--backend-store-uri",
            f"sqlite:///{self._database}",
            "--artifacts-destination",
            str(self._artifacts),
        ]
        env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        if self._password is not None:
            config = self._database.with_suffix(".ini")
            users = self._database.with_suffix(".users")
            config.write_text(
                f"[mlflow]\ndefault_permission = READ\ndatabase_uri = sqlite:///{users}\n"
                "admin_username = admin\n"
                "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
            )
            command += ["--app-name", "basic-auth"]
            env |= {
                "MLFLOW_AUTH_CONFIG_PATH": str(config),
                "MLFLOW_AUTH_ADMIN_PASSWORD": self._password,
                "MLFLOW_FLASK_SERVER_SECRET_KEY": "test secret",
            }
        return subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=env,  # without the seven processes that run jobs
        )

    def kill(self) -> None:
        """Kill all processes of the server with SIGKILL."""
        assert self._process is not None, "only a server that runs can be killed"
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """Terminate the server and wait for its end."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
