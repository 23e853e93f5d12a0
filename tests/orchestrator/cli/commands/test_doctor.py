"""`haltsweep doctor`: every fault has advice and sets the exit code."""

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
def free_disk(monkeypatch):
    """Replace the disk of this machine by one with free space."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2**40, 0, 2**40))


def findings(result):
    return {finding["what"]: finding for finding in json.loads(result.out)}


@contextmanager
def http_server(status):
    """Run an HTTP server that answers with `status`; yield its address and the requested paths."""
    requested_paths = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requested_paths.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as running_server:
        thread = Thread(target=running_server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{running_server.server_port}", requested_paths
        finally:
            running_server.shutdown()
            thread.join()


@pytest.fixture
def unused_port():
    """Yield a port without a listener."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield free.getsockname()[1]


def test_healthy_machine_has_no_fault(haltsweep, tmp_path):
    result = haltsweep("doctor")
    assert result.code == 0, result.out
    assert "FAULT" not in result.out
    for check in (*doctor.PACKAGES, "cpu", "attention", "runs", "data", "tracking"):
        assert f"\nok    {check} " in f"\n{result.out}" or f"\nnote  {check} " in result.out
    assert f"torch          {metadata.version('torch')}" in result.out
    assert not list(tmp_path.iterdir())


def test_doctor_prints_json(haltsweep):
    checks = findings(haltsweep("doctor", "--json"))
    assert checks["ray"] == {"what": "ray", "verdict": "ok", "found": metadata.version("ray"), "advice": ""}


def test_file_store_is_a_fault(haltsweep, tmp_path):
    result = haltsweep("doctor", "--tracking", str(tmp_path / "mlruns"))
    assert result.code == 1
    assert "FAULT tracking" in result.out
    assert "sqlite:////absolute/path/mlflow.db or http://HOST:PORT" in result.out


def test_unreachable_server_is_a_fault(haltsweep, unused_port):
    for url in (f"http://127.0.0.1:{unused_port}", f"postgresql://u:secret@127.0.0.1:{unused_port}/x"):
        result = haltsweep("doctor", "--tracking", url, "--json")
        assert result.code == 1
        tracking = findings(result)["tracking"]
        assert tracking["verdict"] == "fault"
        assert "refused" in tracking["advice"]
        assert "secret" not in result.out


def test_doctor_requests_the_health_page_of_a_server(haltsweep):
    with http_server(200) as (address, requested_paths):
        result = haltsweep("doctor", "--tracking", f"http://me:secret@{address}/mlflow/", "--json")
    assert result.code == 0, result.out
    assert findings(result)["tracking"]["found"] == f"http://me:***@{address}/mlflow/"
    assert requested_paths == ["/mlflow/health"]


def test_unhealthy_server_is_a_fault(haltsweep):
    with http_server(503) as (address, _):
        result = haltsweep("doctor", "--tracking", f"http://{address}", "--json")
    assert result.code == 1
    assert "503" in findings(result)["tracking"]["advice"]


def test_invalid_address_is_a_fault(haltsweep):
    assert (
        findings(haltsweep("doctor", "--tracking", "http://[half", "--json"))["tracking"]["verdict"]
        == "fault"
    )


def test_doctor_checks_an_existing_ledger_and_creates_none(haltsweep, tmp_path, unused_port):
    ledger_file = tmp_path / "ledger.db"
    result = haltsweep("doctor", "--storage", f"sqlite:///{ledger_file}")
    assert result.code == 0, result.out
    assert not ledger_file.exists()
    with Ledger.open(f"sqlite:///{ledger_file}", "one", create=True):
        pass
    assert haltsweep("doctor", "--storage", f"sqlite:///{ledger_file}").code == 0
    (tmp_path / "notes.txt").write_text("no database, whatever its name may say" * 100)
    result = haltsweep("doctor", "--storage", f"sqlite:///{tmp_path / 'notes.txt'}")
    assert result.code == 1
    assert haltsweep("doctor", "--storage", "mysql://a/b").code == 1


def test_full_disk_is_a_fault(haltsweep, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10, 9, 2**30))
    result = haltsweep("doctor", "--runs", "some where")
    assert result.code == 1
    assert "some where: 1.0 GiB" in result.out


def test_unwritable_folder_is_a_fault(haltsweep, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    result = haltsweep("doctor")
    assert result.code == 1
    assert f"data: {tmp_path}" in result.out


def test_missing_package_is_a_fault(haltsweep, monkeypatch):
    def version(name):
        if name == "optuna":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    result = haltsweep("doctor")
    assert result.code == 1
    assert "pip install optuna" in result.out
