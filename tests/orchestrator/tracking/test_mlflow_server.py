"""The projection over HTTP to a real MLflow server that stops and starts again."""

import time
from urllib.parse import quote

import pytest

from orchestrator.ledger.lease import Holder
from orchestrator.tracking.background import start_follower
from orchestrator.tracking.mlflow.mlflow_runs import TrackingOutage
from orchestrator.tracking.state import read_state
from orchestrator.tracking.summary import ArmSummary
from orchestrator.tracking.sync import sync
from tests.orchestrator.tracking.conftest import append
from tests.support.mlflow.mlflow_db import runs
from tests.support.mlflow.mlflow_server import Server
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import history

SMALL = make_plan(1, trials_per_arm=1, seeds=(7,))
"""A server with a login takes a tenth of a second to check the password of each request."""
SUMMARY = ArmSummary({"arm-0": {"test/score/mean": 0.5}})


@pytest.mark.slow
def test_server_with_an_outage_has_everything_in_the_end(
    folder, ledger, plan, database, tmp_path, monkeypatch
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    events = list(history(plan, 1))
    lease = ledger.claim(Holder.current())
    server = Server(database, tmp_path / "served")
    try:
        server.start()
        ledger.append(events[:20], lease)
        follower = start_follower(folder, folder.ledger_url, server.uri)
        wait_until(lambda: (state := read_state(folder)) is not None and state.position > 0)
        server.stop()
        ledger.append(events[20:40], lease)
        wait_until(lambda: (state := read_state(folder)) is not None and state.error != "")
        server.start()
        ledger.append(events[40:], lease)
        ledger.release(lease)
        assert follower.drain(120, outage_s=60) is None
        assert sync(folder, ledger, server.uri, SUMMARY).runs == 0
        assert sync(folder, ledger, server.uri, SUMMARY).total == 0
    finally:
        server.stop()
    over_http = runs(database, plan.name)
    direct = tmp_path / "direct.db"
    sync(folder, ledger, f"sqlite:///{direct}", SUMMARY)
    assert over_http == runs(direct, plan.name)
    assert len(list((tmp_path / "served").rglob("plan.json"))) == 1


def wait_until(condition) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("plan", [SMALL], ids=["small"])
def test_server_with_a_login_accepts_only_the_right_password(folder, ledger, plan, database, tmp_path):
    pytest.importorskip("flask_wtf", reason="mlflow[auth] is not installed")
    append(ledger, history(plan, 1))
    server = Server(database, tmp_path / "served", password="right: @ password")
    user = quote("right: @ password", safe="")
    wrong, right = (
        server.uri.replace("//", f"//admin:{password}@") for password in ("wrong-and-long-enough", user)
    )
    try:
        server.start()
        with pytest.raises(TrackingOutage) as error:
            sync(folder, ledger, wrong)
        message = str(error.value)
        assert "401" in message
        assert "wrong-and-long-enough" not in message
        assert runs(database, plan.name) == {}
        assert sync(folder, ledger, right, SUMMARY).runs > 0
        assert sync(folder, ledger, right, SUMMARY).total == 0
    finally:
        server.stop()
    direct = tmp_path / "direct.db"
    sync(folder, ledger, f"sqlite:///{direct}", SUMMARY)
    assert runs(database, plan.name) == runs(direct, plan.name)
