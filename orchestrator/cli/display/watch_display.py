"""Implement `haltsweep status --watch`, which displays a sweep while another process runs it."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from orchestrator.cli.display.progress import View
from orchestrator.cli.stored_sweep import StoredSweep, open_stored_sweep
from orchestrator.execution.live_view import INTERVAL_FACTOR, Snapshot, ThrottledView

UPDATE_INTERVAL_S = 2.0
"""Minimum seconds between two updates."""
HINT = "Ctrl-C ends only this display"


def watch_sweep(
    name: str, runs: Path, storage: str | None = None, *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Display the sweep `name` until no session holds it. Raise the errors of `open_stored_sweep`."""
    with open_stored_sweep(name, runs, storage, outline=True) as sweep:
        # The time for which sessions had the sweep open is not read, so the wall-clock budget is not
        # displayed.
        plan = replace(sweep.plan, wall_clock_hours=None)
        with View(plan, hint=HINT) as view:
            throttled_view = ThrottledView(lambda: _read_snapshot(sweep), view.show, lambda: None)
            while sweep.ledger.is_held():
                started_at = time.monotonic()
                throttled_view.record_change()
                sleep(max(UPDATE_INTERVAL_S, INTERVAL_FACTOR * (time.monotonic() - started_at)))


def _read_snapshot(sweep: StoredSweep) -> Snapshot:
    overview = sweep.overview()
    outlook = overview.outlook(is_locked=True, now=time.time())
    return Snapshot(overview.progress(is_locked=True), 0.0, "", outlook)
