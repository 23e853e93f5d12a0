"""`status` shows the same numbers from all events or from a snapshot and the later events."""

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli.stored_sweep import StoredSweep
from orchestrator.conductor.overview import MAX_FAILURES, Overview
from orchestrator.conductor.retrying import choose_retries
from orchestrator.execution.sweep.sweep_fold import SweepFold
from orchestrator.identity import SweepFolder
from orchestrator.ledger import ledger_snapshot
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.fold import records
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.ledger_snapshot import LedgerSnapshot
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from tests.orchestrator.execution.sweep.test_sweep_fold import make_phases_plan, make_repeats_plan
from tests.support.processes.logs import MemoryLog, record
from tests.support.sweeps.driving import run_in_turn
from tests.support.sweeps.overviews import overview

PLANS = {"phases": make_phases_plan(), "repeats": make_repeats_plan()}
ASHA_STOPPER = {"name": "asha", "grace_steps": 1, "reduction": 2}


def plan_with_stopper() -> Plan:
    plan = make_phases_plan()
    assert plan.search is not None
    return replace(plan, search=replace(plan.search, stopper=ASHA_STOPPER))


def overview_content(overview: Overview) -> tuple[object, ...]:
    failures = sorted(
        (failure.trial_id, failure.place, failure.standing, failure.reason)
        for failure in overview.ended.failures
    )
    return (
        overview.progress(is_locked=True),
        overview.progress(is_locked=False),
        overview.outlook(is_locked=True, now=2000.0),
        overview.outlook(is_locked=False, now=2000.0),
        overview.ended.skipped,
        overview.ended.infeasible,
        failures if len(failures) < MAX_FAILURES else len(failures),
    )


def stored_overview(folder: Path, plan: Plan, events: Sequence[Event], snapshot_at: int) -> Overview:
    """Return the overview of a ledger with these events and a snapshot at one of them."""
    url = f"sqlite:///{folder / 'ledger.db'}"
    with Ledger.open(url, plan.name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        fold = SweepFold(plan)
        for event in events[:snapshot_at]:
            fold.apply(event)
        ledger.append(list(events[:snapshot_at]), lease)
        ledger.save_snapshot(LedgerSnapshot(snapshot_at, "a plan", fold.content()), lease)
        ledger.append(list(events[snapshot_at:]), lease)
        planned_counts = Counter((trial.arm, trial.phase) for trial in plan.trials)
        return StoredSweep(
            SweepFolder(folder), replace(plan, trials=()), planned_counts, ledger, url
        ).overview()


@pytest.mark.parametrize("plan", [*PLANS.values(), plan_with_stopper()], ids=[*PLANS, "early stopper"])
def test_snapshot_does_not_change_the_overview(plan: Plan, tmp_path: Path) -> None:
    log = MemoryLog()
    run_in_turn(record(plan, log))
    length = len(log.written)
    for number, (snapshot_at, num_events) in enumerate(
        [(length, length), (length // 3, length // 2), (length // 2, length)]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        snapshot_overview = stored_overview(folder, plan, log.written[:num_events], snapshot_at)
        assert overview_content(snapshot_overview) == overview_content(
            overview(plan, records(log.written[:num_events], plan))
        )


def test_overview_reads_no_events_of_ended_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, log, read_events = make_phases_plan(), MemoryLog(), list[Event]()
    run_in_turn(record(plan, log))
    read_newest = Ledger.newest_events
    monkeypatch.setattr(
        Ledger, "newest_events", lambda *a, **k: iter(read_events.extend(read_newest(*a, **k)) or read_events)
    )
    snapshot_at = len(log.written) // 2
    stored_overview(tmp_path, plan, log.written, snapshot_at)
    ended_trials = {trial.trial_id for trial in log.written[:snapshot_at] if trial.kind is EventKind.ENDED}
    assert read_events
    assert not ended_trials & {trial.trial_id for trial in read_events}


def test_retry_after_the_snapshot_counts(tmp_path: Path) -> None:
    plan, log = make_phases_plan(), MemoryLog()
    run_in_turn(record(plan, log))
    snapshot_at = len(log.written)
    recorder = record(plan, log)
    failed_trials = choose_retries(plan, records(log.written, plan), ["failed"]).trial_ids
    recorder.retry(failed_trials[:1], lambda *_: False)
    overview_before, overview_after = (
        overview(plan, records(log.written[:end], plan)) for end in (snapshot_at, None)
    )
    assert overview_content(stored_overview(tmp_path, plan, log.written, snapshot_at)) == overview_content(
        overview_after
    )
    failures = [
        sum(summary.failed for summary in current_overview.progress(is_locked=False))
        for current_overview in (overview_before, overview_after)
    ]
    assert failures[1] < failures[0]


@pytest.mark.parametrize("content", [b"other", zlib.compress(b'{"arms": 3}\n'), zlib.compress(b"x" * 999)])
def test_damaged_snapshot_is_ignored(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, log = make_phases_plan(), MemoryLog()
    run_in_turn(record(plan, log))
    monkeypatch.setattr(ledger_snapshot, "MAX_LINE_BYTES", 99)
    monkeypatch.setattr(SweepFold, "content", lambda _: content)
    snapshot_overview = stored_overview(tmp_path, plan, log.written, len(log.written))
    assert overview_content(snapshot_overview) == overview_content(overview(plan, records(log.written, plan)))
