"""The server's life as a child process, with small programs in the place of MLflow."""

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from orchestrator.errors import InputError, StoreError
from orchestrator.tracking.mlflow import server

SERVES = """
import http.server, json, signal, socket, subprocess, sys
settings = json.load(sys.stdin)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
"""
LISTENS = """
served = http.server.HTTPServer(('127.0.0.1', 0), Handler, bind_and_activate=False)
served.socket = socket.socket(fileno=settings['fd'])
served.serve_forever()
"""
CHILD = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def stand_in(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(server, "_command", lambda: [sys.executable, "-c", program])


@pytest.mark.parametrize("more", ["", CHILD, CHILD + STUBBORN], ids=["alone", "with-child", "stubborn"])
def test_the_server_and_its_children_end(more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, SERVES + more + LISTENS)
    monkeypatch.setattr(server, "END_S", 0.5)
    with server.serve_store("sqlite:///x.db", tmp_path, None) as running:
        leader = psutil.Process(running.process.pid)
        family = [leader, *leader.children(recursive=True)]
        assert len(family) == (2 if more else 1)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]


def test_a_failed_start_of_the_server_is_reported_with_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, "import sys; sys.exit('no such table')")
    with (
        pytest.raises(StoreError, match="no such table"),
        server.serve_store("sqlite:///x.db", tmp_path, None),
    ):
        raise AssertionError("nothing answers")


def test_a_server_that_never_answers_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "import time; print('still importing', flush=True); time.sleep(600)")
    monkeypatch.setattr(server, "START_S", 1.0)
    with (
        pytest.raises(StoreError, match="still importing"),
        server.serve_store("sqlite:///x.db", tmp_path, None),
    ):
        raise AssertionError("nothing answers")


def test_a_taken_port_is_refused_if_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with server.listen(0) as other:
        taken = other.getsockname()[1]
        with pytest.raises(InputError, match=f"--port {taken}"):
            server.listen(taken)
        monkeypatch.setattr(server, "USUAL_PORT", taken)
        with server.listen(None) as elsewhere:
            assert elsewhere.getsockname()[0] == "127.0.0.1"
            assert elsewhere.getsockname()[1] != taken


def test_a_store_that_cannot_be_used_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(
        monkeypatch, f"import sys; print('INFO: noise'); print('of no use.'); sys.exit({server.NO_STORE})"
    )
    with (
        pytest.raises(InputError, match=r"--tracking sqlite:///x\.db: .*of no use"),
        server.serve_store("sqlite:///x.db", tmp_path, None),
    ):
        raise AssertionError("nothing answers")


def test_arguments_and_environment_have_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_STATIC_PREFIX", "/elsewhere")
    monkeypatch.setenv("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "true")
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", "http://minio")
    stand_in(monkeypatch, SERVES + LISTENS)
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
