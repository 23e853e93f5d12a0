"""`haltsweep doctor`: every fault is told with what to do, and counts in the exit code."""

import json
import shutil
import socket
from collections import namedtuple
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from threading import Thread

import pytest

from orchestrator.cli.commands import doctor
from orchestrator.ledger.store import Ledger

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def roomy(monkeypatch):
    """What else is on the disk of this machine is not looked at."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2**40, 0, 2**40))


def findings(answer):
    return {finding["what"]: finding for finding in json.loads(answer.out)}


@contextmanager
def server(status):
    """An HTTP server that answers everything with `status`; its address and the paths it was asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = Thread(target=served.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{served.server_port}", asked
        finally:
            served.shutdown()
            thread.join()


@pytest.fixture
def closed_port():
    """Nobody listens there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield free.getsockname()[1]


def test_a_sound_machine(haltsweep, tmp_path):
    result = haltsweep("doctor")
    assert result.code == 0, result.out
    assert "FAULT" not in result.out
    for what in (*doctor.PACKAGES, "cpu", "attention", "runs", "data", "tracking"):
        assert f"\nok    {what} " in f"\n{result.out}" or f"\nnote  {what} " in result.out
    assert f"torch          {metadata.version('torch')}" in result.out
    assert not list(tmp_path.iterdir())


def test_for_scripts(haltsweep):
    found = findings(haltsweep("doctor", "--json"))
    assert found["ray"] == {"what": "ray", "verdict": "ok", "found": metadata.version("ray"), "advice": ""}


def test_a_file_store_is_a_fault(haltsweep, tmp_path):
    result = haltsweep("doctor", "--tracking", str(tmp_path / "mlruns"))
    assert result.code == 1
    assert "FAULT tracking" in result.out
    assert "is a file store" in result.out
    assert "use sqlite:////absolute/path/mlflow.db or http://HOST:PORT" in result.out


def test_a_server_that_does_not_answer_is_a_fault(haltsweep, closed_port):
    for url in (f"http://127.0.0.1:{closed_port}", f"postgresql://u:secret@127.0.0.1:{closed_port}/x"):
        result = haltsweep("doctor", "--tracking", url, "--json")
        assert result.code == 1
        found = findings(result)["tracking"]
        assert found["verdict"] == "fault"
        assert "refused" in found["advice"]
        assert "secret" not in result.out


def test_a_server_is_asked_for_its_health(haltsweep):
    with server(200) as (address, asked):
        result = haltsweep("doctor", "--tracking", f"http://me:secret@{address}/mlflow/", "--json")
    assert result.code == 0, result.out
    assert findings(result)["tracking"]["found"] == f"http://me:***@{address}/mlflow/"
    assert asked == ["/mlflow/health"]


def test_a_server_that_is_ill_is_a_fault(haltsweep):
    with server(503) as (address, _):
        result = haltsweep("doctor", "--tracking", f"http://{address}", "--json")
    assert result.code == 1
    assert "503" in findings(result)["tracking"]["advice"]


def test_an_address_that_is_none_is_a_fault(haltsweep):
    assert (
        findings(haltsweep("doctor", "--tracking", "http://[half", "--json"))["tracking"]["verdict"]
        == "fault"
    )


def test_the_ledger_is_asked_only_where_it_is(haltsweep, tmp_path, closed_port):
    missing = tmp_path / "ledger.db"
    result = haltsweep("doctor", "--storage", f"sqlite:///{missing}")
    assert result.code == 0, result.out
    assert not missing.exists()
    with Ledger.open(f"sqlite:///{missing}", "one", create=True):
        pass
    assert haltsweep("doctor", "--storage", f"sqlite:///{missing}").code == 0
    (tmp_path / "notes.txt").write_text("no database, whatever its name may say" * 100)
    result = haltsweep("doctor", "--storage", f"sqlite:///{tmp_path / 'notes.txt'}")
    assert result.code == 1
    assert "file is not a database" in result.out
    assert haltsweep("doctor", "--storage", "mysql://a/b").code == 1


def test_a_full_disk_is_a_fault(haltsweep, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10, 9, 2**30))
    result = haltsweep("doctor", "--runs", "some where")
    assert result.code == 1
    assert (
        "FAULT runs           some where: 1.0 GiB free (free some space or choose another --runs)"
        in result.out
    )


def test_a_folder_that_cannot_be_written_is_a_fault(haltsweep, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    result = haltsweep("doctor")
    assert result.code == 1
    assert f"FAULT data           data: {tmp_path} cannot be written (choose another --data)" in result.out


def test_a_missing_package_is_a_fault(haltsweep, monkeypatch):
    def version(name):
        if name == "optuna":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    result = haltsweep("doctor")
    assert result.code == 1
    assert "FAULT optuna         not installed (pip install optuna)" in result.out
