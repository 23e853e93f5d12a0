"""The life of the MLflow server as a child process; small programs replace MLflow."""

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from orchestrator.errors import InputError, StoreError
from orchestrator.tracking.mlflow import server

HANDLER_CODE = """
import http.server, json, signal, socket, subprocess, sys
settings = json.load(sys.stdin)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
"""
SERVER_CODE = """
served = http.server.HTTPServer(('127.0.0.1', 0), Handler, bind_and_activate=False)
served.socket = socket.socket(fileno=settings['fd'])
served.serve_forever()
"""
CHILD_CODE = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
IGNORE_SIGTERM = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def replace_server(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(server, "_command", lambda: [sys.executable, "-c", program])


def test_server_and_its_children_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_server(monkeypatch, HANDLER_CODE + CHILD_CODE + IGNORE_SIGTERM + SERVER_CODE)
    monkeypatch.setattr(server, "END_S", 0.5)
    with server.serve_store("sqlite:///x.db", tmp_path, None) as running:
        leader = psutil.Process(running.process.pid)
        family = [leader, *leader.children(recursive=True)]
        assert len(family) == 2
    _, survivors = psutil.wait_procs(family, timeout=10)
    assert not [process for process in survivors if process.status() != psutil.STATUS_ZOMBIE]


def test_failed_start_of_the_server_is_reported_with_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_server(monkeypatch, "import sys; sys.exit('no such table')")
    with pytest.raises(StoreError), server.serve_store("sqlite:///x.db", tmp_path, None):
        raise AssertionError("the server must not answer")


def test_server_that_never_answers_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_server(monkeypatch, "import time; print('still importing', flush=True); time.sleep(600)")
    monkeypatch.setattr(server, "START_S", 1.0)
    with pytest.raises(StoreError), server.serve_store("sqlite:///x.db", tmp_path, None):
        raise AssertionError("the server must not answer")


def test_used_port_is_refused_if_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with server.listen(0) as other_socket:
        used_port = other_socket.getsockname()[1]
        with pytest.raises(InputError, match=f"--port {used_port}"):
            server.listen(used_port)
        monkeypatch.setattr(server, "DEFAULT_PORT", used_port)
        with server.listen(None) as free_socket:
            assert free_socket.getsockname()[0] == "127.0.0.1"
            assert free_socket.getsockname()[1] != used_port


def test_unusable_store_raises_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_server(
        monkeypatch, f"import sys; print('INFO: noise'); print('of no use.'); sys.exit({server.NO_STORE})"
    )
    with (
        pytest.raises(InputError, match=r"--tracking sqlite:///x\.db"),
        server.serve_store("sqlite:///x.db", tmp_path, None),
    ):
        raise AssertionError("the server must not answer")


def test_arguments_and_environment_have_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_STATIC_PREFIX", "/elsewhere")
    monkeypatch.setenv("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "true")
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", "http://minio")
    replace_server(monkeypatch, HANDLER_CODE + SERVER_CODE)
    with server.serve_store("postgresql://user:secret@host/db", tmp_path, None) as running:
        process = psutil.Process(running.process.pid)
        environment, arguments = process.environ(), process.cmdline()
    token = urlsplit(running.url).path.strip("/")
    assert len(token) >= 32
    for text in (*environment.values(), *arguments):
        assert token not in text
        assert "secret@host" not in text
    assert environment["MLFLOW_S3_ENDPOINT_URL"] == "http://minio"
    assert not {"MLFLOW_STATIC_PREFIX", "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE"} & environment.keys()
    assert environment["PATH"] == os.environ["PATH"]
