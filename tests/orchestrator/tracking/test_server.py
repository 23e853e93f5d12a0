"""The server's life as a child process, with small programs in the place of MLflow."""

import os
import socket
import sys
from pathlib import Path

import psutil
import pytest

from orchestrator.errors import InputError, StoreError
from orchestrator.tracking import server

SERVES = """
import http.server, os, signal, subprocess, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
"""
LISTENS = "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()\n"
CHILD = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def own_port() -> int:
    """A free port that no other process of these tests takes: below those that systems hand out."""
    first = 20_000 + os.getpid() % 1_000 * 10
    return next(port for port in range(first, first + 10) if server._free(port))


def stand_in(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(server, "_command", lambda port: [sys.executable, "-c", program, str(port)])


@pytest.mark.parametrize("more", ["", CHILD, CHILD + STUBBORN], ids=["alone", "with-child", "stubborn"])
def test_nothing_is_left_running(more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, SERVES + more + LISTENS)
    monkeypatch.setattr(server, "END_S", 0.5)
    with server.serving("sqlite:///x.db", tmp_path, own_port()) as running:
        leader = psutil.Process(running.process.pid)
        family = [leader, *leader.children(recursive=True)]
        assert len(family) == (2 if more else 1)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]


def test_nothing_is_left_running_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, SERVES + LISTENS)
    with (
        pytest.raises(KeyboardInterrupt),
        server.serving("sqlite:///x.db", tmp_path, own_port()) as running,
    ):
        raise KeyboardInterrupt
    assert running.process.poll() is not None


def test_a_server_that_does_not_start_is_told_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, "import sys; sys.exit('no such table')")
    with (
        pytest.raises(StoreError, match=r"ended with code 1; it said:\nno such table"),
        server.serving("sqlite:///x.db", tmp_path, own_port()),
    ):
        raise AssertionError("nothing answers")


def test_a_server_that_never_answers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "import time; print('still importing', flush=True); time.sleep(600)")
    monkeypatch.setattr(server, "START_S", 1.0)
    with (
        pytest.raises(StoreError, match=r"must answer within 1 s, got .*; it said:\nstill importing"),
        server.serving("sqlite:///x.db", tmp_path, own_port()),
    ):
        raise AssertionError("nothing answers")


def test_the_answer_of_another_server_is_not_taken_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commands started at once find the same port free, since MLflow takes seconds to listen."""
    stand_in(monkeypatch, SERVES + LISTENS)
    port = own_port()
    with server.serving("sqlite:///x.db", tmp_path, port):
        stand_in(monkeypatch, "import time; time.sleep(600)")
        monkeypatch.setattr(server, "START_S", 1.0)
        with (
            pytest.raises(StoreError, match="within 1 s, got the answer of another program on its port"),
            server.serving("sqlite:///y.db", tmp_path, port),
        ):
            raise AssertionError("it is not its own")


def test_who_loses_a_port_takes_another_unless_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = own_port()
    monkeypatch.setattr(server, "USUAL_PORT", port)
    taken: list[socket.socket] = []

    def command(asked: int) -> list[str]:
        if asked == port and not taken:  # by somebody who is quicker
            taken.append(socket.create_server(("127.0.0.1", port)))
        return [sys.executable, "-c", SERVES + LISTENS, str(asked)]

    monkeypatch.setattr(server, "_command", command)
    try:
        with server.serving_anywhere("sqlite:///x.db", tmp_path, None) as running:
            assert running.url != f"http://127.0.0.1:{port}"
    finally:
        taken.pop().close()
    try:
        with (
            pytest.raises(StoreError, match="Address already in use"),
            server.serving_anywhere("sqlite:///x.db", tmp_path, port),
        ):
            raise AssertionError("it must not go elsewhere")
    finally:
        taken.pop().close()


def test_a_server_that_ends_by_itself_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, SERVES + LISTENS)
    with server.serving("sqlite:///x.db", tmp_path, own_port()) as running:
        running.process.kill()
        with pytest.raises(StoreError, match="must run until it is asked to end, and ended with code -9"):
            running.wait()


def test_a_port_that_is_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = own_port()
    with socket.create_server(("127.0.0.1", taken)):
        with pytest.raises(InputError, match=rf"127.0.0.1:{taken} is taken; choose another --port"):
            server.choose_port(taken)
        monkeypatch.setattr(server, "USUAL_PORT", taken)
        assert server.choose_port(None) != taken
    assert server.choose_port(taken) == taken
    assert server.choose_port(None) == taken, "the usual port, now that it is free"


def test_only_this_machine_can_reach_it_and_nobody_reads_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_STATIC_PREFIX", "/elsewhere")
    monkeypatch.setenv("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "true")
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", "http://minio")
    uri = "postgresql://user:secret@host/db"
    command, environment = server._command(5000), server._environment(uri, tmp_path)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert not any("secret" in part for part in command)
    assert environment["MLFLOW_BACKEND_STORE_URI"] == uri
    assert environment["MLFLOW_S3_ENDPOINT_URL"] == "http://minio"
    assert not {"MLFLOW_STATIC_PREFIX", "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE"} & environment.keys()
    assert environment["PATH"] == os.environ["PATH"]
