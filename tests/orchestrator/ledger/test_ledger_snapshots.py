"""Snapshots are stored with the events, and used only if they fit these events."""

from dataclasses import replace

import pytest

from orchestrator.errors import LeaseLost
from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder, Lease
from orchestrator.ledger.ledger_snapshot import LedgerSnapshot
from orchestrator.ledger.store import Ledger
from tests.orchestrator.ledger.conftest import execute
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import history

PLAN = make_plan(2)
SWEEP = "sweep"


def write_ledger(url: str, sweep: str = SWEEP) -> tuple[int, Lease]:
    """Write a ledger with a snapshot; return the position of the newest event, and the lease."""
    with Ledger.open(url, sweep, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        ledger.append(list(history(PLAN, closed=None)), lease)
        ledger.save_snapshot(LedgerSnapshot(ledger.last_seq(), "plan", b"state"), lease)
        return ledger.last_seq(), lease


def test_snapshot_remains_until_another_replaces_it(any_url: str) -> None:
    seq, lease = write_ledger(any_url)
    with Ledger.open(any_url, SWEEP) as ledger:
        assert ledger.snapshot() == LedgerSnapshot(seq, "plan", b"state")
        ledger.append([log.release_event(1.0, "done")], lease)
        assert ledger.snapshot() == LedgerSnapshot(seq, "plan", b"state"), "the snapshot must stay valid"
        ledger.save_snapshot(LedgerSnapshot(seq + 1, "plan", b"later"), lease)
        assert ledger.snapshot() == LedgerSnapshot(seq + 1, "plan", b"later")
        assert not ledger.has_unfit_snapshot()
        assert ledger.verify() == []


def test_snapshot_must_end_at_the_newest_event(any_url: str) -> None:
    seq, lease = write_ledger(any_url)
    with Ledger.open(any_url, SWEEP) as ledger:
        for wrong_seq in (seq - 1, seq + 1):
            ledger.save_snapshot(LedgerSnapshot(wrong_seq, "plan", b"other"), lease)
        assert ledger.snapshot() == LedgerSnapshot(seq, "plan", b"state")


def test_only_the_holder_stores_a_snapshot(any_url: str) -> None:
    seq, lease = write_ledger(any_url)
    with Ledger.open(any_url, SWEEP) as ledger:
        with pytest.raises(LeaseLost):
            ledger.save_snapshot(LedgerSnapshot(seq, "plan", b"mine"), replace(lease, token=lease.token + 1))
        assert ledger.snapshot() == LedgerSnapshot(seq, "plan", b"state")


@pytest.mark.parametrize(
    "change", ["content = CAST('other' AS BLOB)", "seq = seq - 1", "made_for = 'another plan'"]
)
def test_changed_snapshot_is_not_used(url: str, change: str) -> None:
    write_ledger(url)
    execute(url, f"UPDATE haltsweep_snapshots SET {change}")
    with Ledger.open(url, SWEEP) as ledger:
        assert ledger.snapshot() is None
        assert ledger.has_unfit_snapshot()


def test_snapshot_of_another_sweep_or_of_deleted_events_is_not_used(url: str) -> None:
    _, lease = write_ledger(url)
    write_ledger(url, "other")
    execute(url, "DELETE FROM haltsweep_snapshots WHERE sweep_id = 1")
    execute(url, "UPDATE haltsweep_snapshots SET sweep_id = 1")
    with Ledger.open(url, SWEEP) as ledger:
        assert ledger.snapshot() is None
        ledger.save_snapshot(LedgerSnapshot(ledger.last_seq(), "plan", b"state"), lease)
        assert ledger.snapshot() is not None
    execute(url, "DELETE FROM haltsweep_events WHERE seq = (SELECT max(seq) FROM haltsweep_events)")
    with Ledger.open(url, SWEEP) as ledger:
        assert ledger.snapshot() is None


def test_snapshot_is_deleted(any_url: str) -> None:
    write_ledger(any_url)
    with Ledger.open(any_url, SWEEP) as ledger:
        ledger.delete_snapshot()
        assert ledger.snapshot() is None
        assert not ledger.has_unfit_snapshot()
        assert ledger.verify() == []
