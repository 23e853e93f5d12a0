"""Requests to stop: for the session that holds the sweep now, and for no other."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from orchestrator.ledger.lease import Holder
from orchestrator.ledger.sql.engine import connect, transaction
from orchestrator.ledger.store import Ledger
from tests.support.stores.postgres import postgres_url
from tests.support.sweeps.histories import DEAD


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "sqlite":
        with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", "sweep", create=True) as opened:
            yield opened
    else:
        with postgres_url(request) as url, Ledger.open(url, "sweep", create=True) as opened:
            yield opened


def test_the_holder_hears_what_was_asked_last(store: Ledger) -> None:
    lease = store.claim(Holder.current())
    assert store.stop_asked(lease) is None
    asked = store.ask_to_stop("ada on host")
    assert asked is not None
    assert asked.token == lease.token
    request = store.stop_asked(lease)
    assert request is not None
    assert (request.by, request.at_once) == ("ada on host", False)
    store.ask_to_stop("bob on host", at_once=True)
    request = store.stop_asked(lease)
    assert request is not None
    assert (request.by, request.at_once) == ("bob on host", True)


def test_a_request_is_never_heard_by_the_next_holder(store: Ledger) -> None:
    lease = store.claim(Holder.current())
    store.ask_to_stop("ada")
    store.release(lease)
    later = store.claim(Holder.current())
    assert store.stop_asked(later) is None
    assert store.stop_asked(lease) is not None


def test_where_nobody_holds_the_sweep_nothing_is_asked(store: Ledger) -> None:
    assert store.ask_to_stop("ada") is None
    store.release(store.claim(Holder.current()))
    assert store.ask_to_stop("ada") is None


def test_a_holder_elsewhere_is_asked_until_its_lease_runs_out(tmp_path: Path) -> None:
    now = 1000.0
    with Ledger.open(f"sqlite:///{tmp_path / 'x.db'}", "s", create=True, clock=lambda: now) as ledger:
        lease = ledger.claim(DEAD)
        assert ledger.ask_to_stop("ada") == lease
        now = lease.expires_at
        assert ledger.ask_to_stop("ada") is None


def test_a_ledger_of_an_earlier_version_gets_the_table(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    with Ledger.open(url, "sweep", create=True) as ledger:
        lease = ledger.claim(Holder.current())
    engine = connect(url)
    with transaction(engine, write=True) as connection:
        connection.execute(text("DROP TABLE haltsweep_stops"))
    engine.dispose()
    with Ledger.open(url, "sweep") as ledger:
        ledger.ask_to_stop("ada")
        assert ledger.stop_asked(lease) is not None
