"""Requests to stop reach only the session that holds the sweep at that moment."""

from pathlib import Path

from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from tests.orchestrator.ledger.conftest import execute
from tests.support.sweeps.histories import DEAD


def test_only_the_present_holder_receives_the_newest_request(store: Ledger) -> None:
    assert store.request_stop("ada") is None
    lease = store.claim(Holder.current())
    assert store.stop_request(lease) is None
    asked_lease = store.request_stop("ada on host")
    assert asked_lease.token == lease.token
    request = store.stop_request(lease)
    assert (request.by, request.at_once) == ("ada on host", False)
    store.request_stop("bob on host", at_once=True)
    request = store.stop_request(lease)
    assert (request.by, request.at_once) == ("bob on host", True)
    store.release(lease)
    assert store.request_stop("ada") is None
    assert store.stop_request(store.claim(Holder.current())) is None


def test_holder_on_another_host_receives_requests_until_its_lease_expires(tmp_path: Path) -> None:
    now = 1000.0
    with Ledger.open(f"sqlite:///{tmp_path / 'x.db'}", "s", create=True, clock=lambda: now) as ledger:
        lease = ledger.claim(DEAD)
        assert ledger.request_stop("ada") == lease
        now = lease.expires_at
        assert ledger.request_stop("ada") is None


def test_ledger_of_an_earlier_version_gets_the_table_of_stops(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    with Ledger.open(url, "sweep", create=True) as ledger:
        lease = ledger.claim(Holder.current())
    execute(url, "DROP TABLE haltsweep_stops")
    with Ledger.open(url, "sweep") as ledger:
        ledger.request_stop("ada")
        assert ledger.stop_request(lease) is not None
