"""The projection over HTTP, to a real MLflow server that goes away and comes back."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.tracking.background import read_state, start_follower
from orchestrator.tracking.sync import sync
from tests.support.histories import history
from tests.support.mlflow_db import runs


class Server:
    """`mlflow server` on a port of its own."""

    def __init__(self, database: Path, artifacts: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self._database, self._artifacts = database, artifacts
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--port", str(self.port), "--workers", "1"]
        command += [
            "--backend-store-uri",
            f"sqlite:///{self._database}",
            "--artifacts-destination",
            str(self._artifacts),
        ]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + 120
        while not self._answers():
            assert time.monotonic() < deadline, "the server must answer within two minutes"
            time.sleep(0.2)

    def stop(self) -> None:
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


@pytest.mark.slow
def test_a_server_that_goes_away_for_a_while_has_everything_in_the_end(
    folder: SweepFolder,
    ledger: Ledger,
    plan: Plan,
    database: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    events = list(history(plan, 1))
    lease = ledger.claim(Holder.current())
    server = Server(database, tmp_path / "served")
    try:
        server.start()
        ledger.append(events[:20], lease)
        follower = start_follower(folder, folder.ledger_url, server.uri)
        wait(lambda: (state := read_state(folder)) is not None and state.position > 0)
        server.stop()
        ledger.append(events[20:40], lease)
        wait(lambda: (state := read_state(folder)) is not None and state.error != "")
        server.start()
        ledger.append(events[40:], lease)
        ledger.release(lease)
        assert follower.drain(120, outage_s=60) is None
        assert sync(folder, ledger, server.uri, {"arm-0": {"test/score/mean": 0.5}}).runs == 0
        assert sync(folder, ledger, server.uri, {"arm-0": {"test/score/mean": 0.5}}).total == 0
    finally:
        server.stop()
    over_http = runs(database, plan.name)
    direct = tmp_path / "direct.db"
    sync(folder, ledger, f"sqlite:///{direct}", {"arm-0": {"test/score/mean": 0.5}})
    assert over_http == runs(direct, plan.name)
    assert len(list((tmp_path / "served").rglob("plan.json"))) == 1


def wait(condition) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
