"""`haltsweep stop`: the request, the wait and the messages. Tests in tests/faults stop real sessions."""

import re

import pytest

from orchestrator.cli.commands import stop as module
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from tests.support.specs.plans import make_plan
from tests.support.sweeps.launched import launched


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(launched(tmp_path, make_plan(1)).ledger_url, "synthetic") as open_ledger:
        yield open_ledger


def test_stop_accepts_a_sweep_without_a_session(haltsweep, ledger):
    result = haltsweep("stop", "synthetic")
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize(("options", "is_immediate"), [((), False), (("--now",), True)])
def test_stop_request_needs_no_lease(haltsweep, ledger, options, is_immediate):
    lease = ledger.claim(Holder.current())
    result = haltsweep("stop", "synthetic", "--no-wait", *options)
    assert result.code == 0
    request = ledger.stop_request(lease)
    assert request.at_once is is_immediate
    assert ledger.renew(lease).token == lease.token, "the holder still holds it"


def test_stop_waits_until_the_holder_releases_its_lease(haltsweep, ledger, monkeypatch):
    lease = ledger.claim(Holder.current())
    monkeypatch.setattr(module, "MESSAGE_INTERVAL_S", 0.0)
    monkeypatch.setattr(module.time, "sleep", lambda _: ledger.release(lease))
    result = haltsweep("stop", "synthetic")
    assert (result.code, "haltsweep resume synthetic" in result.out) == (0, True)


def test_stop_ends_after_its_timeout(haltsweep, ledger):
    ledger.claim(Holder.current())
    result = haltsweep("stop", "synthetic", "--timeout", "0")
    assert result.code == 1
    assert re.search(" 0 s.*--now", result.err)


def test_stop_needs_only_the_database(haltsweep, tmp_path):
    url = f"sqlite:///{tmp_path / 'team.db'}"
    with Ledger.open(url, "far", create=True) as ledger:
        lease = ledger.claim(Holder.current())
        result = haltsweep("stop", "far", "--storage", url, "--no-wait")
        assert (result.code, result.err) == (0, "")
        assert ledger.stop_request(lease) is not None
    result = haltsweep("stop", "fra", "--storage", url)
    assert result.code == 1
    assert "'fra'" in result.err
