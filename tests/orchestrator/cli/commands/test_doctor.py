"""`haltsweep doctor`: every fault has advice and sets the exit code."""

import json
import shutil
import socket
from collections import namedtuple
from importlib import metadata

import pytest

from orchestrator.cli.commands import doctor
from orchestrator.ledger.store import Ledger
from tests.support.mlflow.mlflow_answers import answering

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def free_disk(monkeypatch):
    """Replace the disk of this machine by one with free space."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2**40, 0, 2**40))


def findings(result):
    return {finding["what"]: finding for finding in json.loads(result.out)}


@pytest.fixture
def unused_port():
    """Yield a port without a listener."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield free.getsockname()[1]


def test_healthy_machine_has_no_fault(haltsweep, tmp_path):
    result = haltsweep("doctor")
    assert result.code == 0, result.out
    for check in (*doctor.PACKAGES, "cpu", "attention", "runs", "data", "tracking"):
        assert f" {check} " in result.out
    assert f"torch          {metadata.version('torch')}" in result.out
    assert not list(tmp_path.iterdir())


def test_unreachable_server_is_a_fault(haltsweep, unused_port):
    for url in (f"http://127.0.0.1:{unused_port}", f"postgresql://u:secret@127.0.0.1:{unused_port}/x"):
        result = haltsweep("doctor", "--tracking", url, "--json")
        assert (result.code, findings(result)["tracking"]["verdict"]) == (1, "fault")
        assert "secret" not in result.out


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_doctor_requests_the_health_page_of_a_server(haltsweep, status, code):
    with answering({"/mlflow/health": (status, "")}) as server:
        url = server.url.replace("//", "//me:secret@")
        result = haltsweep("doctor", "--tracking", f"{url}/mlflow/", "--json")
    assert result.code == code
    assert findings(result)["tracking"]["found"] == f"{url.replace('secret', '***')}/mlflow/"


def test_doctor_checks_an_existing_ledger_and_creates_none(haltsweep, tmp_path):
    ledger_file = tmp_path / "ledger.db"
    result = haltsweep("doctor", "--storage", f"sqlite:///{ledger_file}")
    assert result.code == 0, result.out
    assert not ledger_file.exists()
    with Ledger.open(f"sqlite:///{ledger_file}", "one", create=True):
        pass
    assert haltsweep("doctor", "--storage", f"sqlite:///{ledger_file}").code == 0
    (tmp_path / "notes.txt").write_text("no database, whatever its name may say" * 100)
    assert haltsweep("doctor", "--storage", f"sqlite:///{tmp_path / 'notes.txt'}").code == 1


def test_full_disk_is_a_fault(haltsweep, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10, 9, 2**30))
    result = haltsweep("doctor", "--runs", "some where")
    assert result.code == 1
    assert "some where: 1.0 GiB" in result.out
