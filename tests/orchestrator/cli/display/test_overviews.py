"""What `status` shows is the same whether it reads all events or a snapshot and the events behind it."""

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli.stored_sweep import StoredSweep
from orchestrator.conductor.overview import FAILURES_KEPT, Overview
from orchestrator.conductor.retrying import choose
from orchestrator.execution.sweep.sweep_fold import SweepFold
from orchestrator.identity import SweepFolder
from orchestrator.ledger import ledger_snapshot
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.fold import records
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.ledger_snapshot import LedgerSnapshot
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import read_outline, to_json
from orchestrator.plan.types import Plan
from tests.orchestrator.execution.sweep.test_sweep_fold import PLANS, plan_of
from tests.support.processes.logs import MemoryLog, record
from tests.support.sweeps.driving import run_in_turn
from tests.support.sweeps.overviews import overview

ASHA = {"name": "asha", "grace_steps": 1, "reduction": 2}


def stopped_early() -> Plan:
    plan = plan_of()
    assert plan.search is not None
    return replace(plan, search=replace(plan.search, stopper=ASHA))


def shown(of: Overview) -> tuple[object, ...]:
    failures = sorted(
        (failure.trial_id, failure.place, failure.standing, failure.reason) for failure in of.ended.failures
    )
    return (
        of.progress(is_locked=True),
        of.progress(is_locked=False),
        of.outlook(is_locked=True, now=2000.0),
        of.outlook(is_locked=False, now=2000.0),
        of.ended.skipped,
        of.ended.infeasible,
        failures if len(failures) < FAILURES_KEPT else len(failures),
    )


def seen(folder: Path, plan: Plan, written: Sequence[Event], snapshot_at: int) -> Overview:
    """Return the overview of a ledger with these events and a snapshot at one of them."""
    url = f"sqlite:///{folder / 'ledger.db'}"
    with Ledger.open(url, plan.name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        fold = SweepFold(plan)
        for event in written[:snapshot_at]:
            fold.hear(event)
        ledger.append(list(written[:snapshot_at]), lease)
        ledger.save_snapshot(LedgerSnapshot(snapshot_at, "a plan", fold.content()), lease)
        ledger.append(list(written[snapshot_at:]), lease)
        planned = Counter((trial.arm, trial.phase) for trial in plan.trials)
        return StoredSweep(SweepFolder(folder), replace(plan, trials=()), planned, ledger, url).overview()


@pytest.mark.parametrize("plan", [*PLANS.values(), stopped_early()], ids=[*PLANS, "early stopper"])
def test_a_snapshot_changes_nothing_of_an_overview(plan: Plan, tmp_path: Path) -> None:
    log = MemoryLog()
    run_in_turn(record(plan, log))
    length = len(log.written)
    for number, (at, cut) in enumerate([(length, length), (length // 3, length // 2), (length // 2, length)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = seen(folder, plan, log.written[:cut], at)
        assert shown(found) == shown(overview(plan, records(log.written[:cut], plan)))


def test_ended_trials_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, log, read = plan_of(), MemoryLog(), list[Event]()
    run_in_turn(record(plan, log))
    newest = Ledger.newest
    monkeypatch.setattr(Ledger, "newest", lambda *a, **k: iter(read.extend(newest(*a, **k)) or read))
    at = len(log.written) // 2
    seen(tmp_path, plan, log.written, at)
    ended = {trial.trial_id for trial in log.written[:at] if trial.kind is EventKind.ENDED}
    assert read
    assert not ended & {trial.trial_id for trial in read}


def test_a_retry_behind_the_snapshot_counts(tmp_path: Path) -> None:
    plan, log = plan_of(), MemoryLog()
    run_in_turn(record(plan, log))
    at = len(log.written)
    recorder = record(plan, log)
    failed = choose(plan, records(log.written, plan), ["failed"]).trial_ids
    recorder.retry(failed[:1], lambda *_: False)
    before, again = (overview(plan, records(log.written[:end], plan)) for end in (at, None))
    assert shown(seen(tmp_path, plan, log.written, at)) == shown(again)
    failures = [sum(each.failed for each in of.progress(is_locked=False)) for of in (before, again)]
    assert failures[1] < failures[0]


@pytest.mark.parametrize(
    "content",
    [b"", b"other", zlib.compress(b"[]\n"), zlib.compress(b'{"arms": 3}\n'), zlib.compress(b"x" * 999)],
)
def test_a_snapshot_that_holds_no_sums_is_passed_over(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, log = plan_of(), MemoryLog()
    run_in_turn(record(plan, log))
    monkeypatch.setattr(ledger_snapshot, "MOST_LINE", 99)
    monkeypatch.setattr(SweepFold, "content", lambda _: content)
    found = seen(tmp_path, plan, log.written, len(log.written))
    assert shown(found) == shown(overview(plan, records(log.written, plan)))


def test_an_early_stopper_has_sums_in_its_snapshots() -> None:
    plan, log, other = stopped_early(), MemoryLog(), MemoryLog()
    run_in_turn(record(plan, log, snapshot_every=1))
    run_in_turn(record(plan, other))
    assert log.written == other.written
    assert log.kept is not None
    fold = SweepFold(plan)
    for event in log.written[: log.kept.seq]:
        fold.hear(event)
    assert fold.matches(log.kept.content)


def test_the_outline_of_a_plan_has_all_but_its_trials(tmp_path: Path) -> None:
    folder, plan = SweepFolder(tmp_path), plan_of()
    folder.plan.write_text(to_json(plan), encoding="utf-8")
    outline, planned = read_outline(folder)
    assert outline == replace(plan, trials=())
    assert planned == Counter((trial.arm, trial.phase) for trial in plan.trials)
