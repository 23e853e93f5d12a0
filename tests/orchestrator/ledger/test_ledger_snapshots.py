"""Snapshots in the ledger: kept with the events, and used only where they fit them."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from orchestrator.errors import LeaseLost
from orchestrator.identity import SweepFolder
from orchestrator.ledger import events as log
from orchestrator.ledger.deletion import delete_sweep
from orchestrator.ledger.engine import connect, transaction
from orchestrator.ledger.lease import Holder, Lease
from orchestrator.ledger.snapshots import LedgerSnapshot
from orchestrator.ledger.store import Ledger
from tests.support.histories import history
from tests.support.plans import make_plan

PLAN = make_plan(2)
SWEEP = "sweep"


def written(url: str, sweep: str = SWEEP) -> tuple[int, Lease]:
    """Position of the newest event, and the lease."""
    with Ledger.open(url, sweep, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        ledger.append(list(history(PLAN, closed=None)), lease)
        ledger.save_snapshot(LedgerSnapshot(ledger.last_seq(), "plan", b"state"), lease)
        return ledger.last_seq(), lease


def execute(url: str, statement: str) -> None:
    engine = connect(url)
    with transaction(engine, write=True) as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_a_snapshot_stays_until_another_replaces_it(any_url: str) -> None:
    seq, lease = written(any_url)
    with Ledger.open(any_url, SWEEP) as ledger:
        assert ledger.snapshot() == LedgerSnapshot(seq, "plan", b"state")
        ledger.append([log.closed(1.0, "done")], lease)
        assert ledger.snapshot() == LedgerSnapshot(seq, "plan", b"state"), "of events that are there still"
        ledger.save_snapshot(LedgerSnapshot(seq + 1, "plan", b"later"), lease)
        assert ledger.snapshot() == LedgerSnapshot(seq + 1, "plan", b"later")
        assert not ledger.has_unfit_snapshot()
        assert ledger.verify() == []


def test_a_snapshot_that_does_not_end_at_the_newest_event_is_not_stored(any_url: str) -> None:
    seq, lease = written(any_url)
    with Ledger.open(any_url, SWEEP) as ledger:
        for other in (seq - 1, seq + 1):
            ledger.save_snapshot(LedgerSnapshot(other, "plan", b"other"), lease)
        assert ledger.snapshot() == LedgerSnapshot(seq, "plan", b"state")


def test_only_the_holder_stores_one(any_url: str) -> None:
    seq, lease = written(any_url)
    with Ledger.open(any_url, SWEEP) as ledger:
        with pytest.raises(LeaseLost):
            ledger.save_snapshot(LedgerSnapshot(seq, "plan", b"mine"), replace(lease, token=lease.token + 1))
        assert ledger.snapshot() == LedgerSnapshot(seq, "plan", b"state")


@pytest.mark.parametrize(
    "change",
    [
        "content = CAST('other' AS BLOB)",
        "content = 'text'",
        "seq = seq - 1",
        "seq = seq + 1",
        "head = 'x'",
        "made_for = 'another plan'",
        "digest = ''",
    ],
)
def test_a_changed_snapshot_is_not_read(url: str, change: str) -> None:
    written(url)
    execute(url, f"UPDATE haltsweep_snapshots SET {change}")
    with Ledger.open(url, SWEEP) as ledger:
        assert ledger.snapshot() is None
        assert ledger.has_unfit_snapshot()


def test_a_snapshot_of_another_sweep_or_of_events_that_are_gone_is_not_read(url: str) -> None:
    _, lease = written(url)
    written(url, "other")
    execute(url, "DELETE FROM haltsweep_snapshots WHERE sweep_id = 1")
    execute(url, "UPDATE haltsweep_snapshots SET sweep_id = 1")
    with Ledger.open(url, SWEEP) as ledger:
        assert ledger.snapshot() is None
        ledger.save_snapshot(LedgerSnapshot(ledger.last_seq(), "plan", b"state"), lease)
        assert ledger.snapshot() is not None
    execute(url, "DELETE FROM haltsweep_events WHERE seq = (SELECT max(seq) FROM haltsweep_events)")
    with Ledger.open(url, SWEEP) as ledger:
        assert ledger.snapshot() is None


def test_a_ledger_from_before_there_were_snapshots_gets_them(any_url: str) -> None:
    seq, lease = written(any_url)
    execute(any_url, "DROP TABLE haltsweep_snapshots")
    with Ledger.open(any_url, SWEEP) as ledger:
        assert ledger.snapshot() is None
        ledger.save_snapshot(LedgerSnapshot(seq, "plan", b"state"), lease)
        assert ledger.snapshot() is not None


def test_a_sweep_is_deleted_with_its_snapshot(any_url: str) -> None:
    written(any_url)
    with Ledger.open(any_url, SWEEP) as ledger:
        uid = ledger.uid
    assert delete_sweep(any_url, SWEEP, uid)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "within"])
def test_a_process_killed_at_a_snapshot_loses_no_event(tmp_path: Path, moment: str) -> None:
    """The snapshot before stays, and the events behind it are folded."""
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from orchestrator.identity import SweepFolder\n"
        "from orchestrator.drivers.recorder import Recorder\n"
        "from orchestrator.ledger import snapshots\n"
        "from orchestrator.ledger.lease import Holder\n"
        "from orchestrator.ledger.store import Ledger\n"
        "from tests.support.driving import run_in_turn\n"
        "from tests.support.plans import make_plan\n"
        "folder, moment, write, left = SweepFolder(Path(sys.argv[1])), sys.argv[2], snapshots.write, [3]\n"
        "def dying(*arguments):\n"
        "    left[0] -= 1\n"
        "    if not left[0] and moment == 'before': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    write(*arguments)\n"
        "    if not left[0]: os.kill(os.getpid(), signal.SIGKILL)\n"
        "if moment: snapshots.write = dying\n"
        "with Ledger.open(folder.ledger_url, 'synthetic', create=True) as ledger:\n"
        "    lease, plan = ledger.claim(Holder.current()), make_plan(2)\n"
        "    run_in_turn(Recorder(plan, ledger, lease, folder, snapshots=ledger, snapshot_every=7))\n"
    )
    folder = SweepFolder(tmp_path)
    seen = []
    for each in (moment, ""):
        done = subprocess.run([sys.executable, "-c", script, tmp_path, each], check=False)
        with Ledger.open(folder.ledger_url, "synthetic") as ledger:
            kept = ledger.snapshot()
            assert kept is not None
            seen.append((done.returncode == 0, kept.seq, ledger.last_seq()))
            assert ledger.verify() == []
    (finished, kept_at, last), (finished_again, *_) = seen
    assert not finished
    assert kept_at < last, "the killed process had stored events behind the snapshot"
    assert finished_again
