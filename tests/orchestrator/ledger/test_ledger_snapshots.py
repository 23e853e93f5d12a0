"""Snapshots are stored with the events, and used only if they fit these events."""

import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from sqlalchemy import text

from orchestrator.errors import LeaseLost
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.sweep.sweep_fold import SweepFold
from orchestrator.identity import SweepFolder
from orchestrator.ledger import events as log
from orchestrator.ledger.fold import records
from orchestrator.ledger.lease import Holder, Lease
from orchestrator.ledger.ledger_snapshot import LedgerSnapshot
from orchestrator.ledger.sql.engine import connect, transaction
from orchestrator.ledger.store import Ledger
from orchestrator.trials import Record
from tests.support.specs.plans import make_plan
from tests.support.sweeps.driving import run_in_turn
from tests.support.sweeps.histories import history
from tests.support.sweeps.repeated import repeated_plan

PLAN = make_plan(2)
REPEATED = repeated_plan(2, controls=1, sampler="tpe", posthoc=({"model.shift": 0.5},))
SWEEP = "sweep"


def write_ledger(url: str, sweep: str = SWEEP) -> tuple[int, Lease]:
    """Write a ledger with a snapshot; return the position of the newest event, and the lease."""
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


def test_snapshot_remains_until_another_replaces_it(any_url: str) -> None:
    seq, lease = write_ledger(any_url)
    with Ledger.open(any_url, SWEEP) as ledger:
        assert ledger.snapshot() == LedgerSnapshot(seq, "plan", b"state")
        ledger.append([log.closed(1.0, "done")], lease)
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
    "change",
    ["content = CAST('other' AS BLOB)", "seq = seq - 1", "made_for = 'another plan'"],
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


KILLED_CODE = """
import os, signal, sys
from pathlib import Path
from orchestrator.ledger import snapshots
from tests.orchestrator.ledger.test_ledger_snapshots import REPEATED, resume
write, left = snapshots.write, [3]
def dying(*arguments):
    left[0] -= 1
    write(*arguments)
    if not left[0]: os.kill(os.getpid(), signal.SIGKILL)
snapshots.write = dying
resume(Path(sys.argv[1]))
"""
CHANGES = {"kept": "", "removed": "DELETE FROM haltsweep_snapshots"}


def resume(root: Path) -> list[Record]:
    """Run the remaining trials of the sweep in `root`; return its records without times."""
    root.mkdir(exist_ok=True)
    folder = SweepFolder(root)
    with Ledger.open(folder.ledger_url, REPEATED.name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        recorder = Recorder(REPEATED, ledger, lease, folder, snapshots=ledger, snapshot_every=40)
        run_in_turn(recorder)
        recorder.close()
        assert ledger.verify() == []
        stored, fold = ledger.snapshot(), SweepFold(REPEATED)
        assert stored is not None
        for event in islice(ledger.events(), stored.seq):
            fold.apply(event)
        assert fold.matches(stored.content)
        sweep_records = records(ledger.events(), REPEATED)
    return [
        replace(trial_record, started_at=None, ended_at=None, attempts=1) for trial_record in sweep_records
    ]


@pytest.mark.slow
def test_sweep_killed_at_a_snapshot_resumes_to_the_same_end(tmp_path: Path) -> None:
    """The sweep has repeated searches with a control. Without a usable snapshot, all events are folded."""
    undisturbed = resume(tmp_path / "whole")
    assert {trial_record.repeat for trial_record in undisturbed} == {0, 1}
    killed = tmp_path / "killed"
    result = subprocess.run([sys.executable, "-c", KILLED_CODE, killed], check=False)
    assert result.returncode == -signal.SIGKILL
    with Ledger.open(SweepFolder(killed).ledger_url, REPEATED.name) as ledger:
        stored = ledger.snapshot()
        assert stored is not None
        assert 0 < stored.seq < ledger.last_seq(), "there must be events after the snapshot"
    for number, (name, change) in enumerate(CHANGES.items()):
        copy = tmp_path / str(number)
        shutil.copytree(killed, copy)
        if change:
            execute(SweepFolder(copy).ledger_url, change)
        assert resume(copy) == undisturbed, name
