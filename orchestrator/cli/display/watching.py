"""`haltsweep status --watch`: a sweep that somebody else runs, looked at until nobody does."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from orchestrator.cli.display.progress import View
from orchestrator.cli.reading import Opened, opened
from orchestrator.execution.live_view import LOOK_SHARE, Snapshot, ThrottledView

EVERY_S = 2.0
"""Least time between two looks."""
HINT = "Ctrl-C ends the watching, not the sweep"


def watch_sweep(
    name: str,
    runs: Path,
    storage: str | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show the sweep `name` until nobody holds it. Raises InputError, StoreError as `opened`."""
    with opened(name, runs, storage, outline=True) as sweep:
        # How long the sweep was held open so far is not read, so of its budget nothing is said.
        plan = replace(sweep.plan, wall_clock_hours=None)
        with View(plan, hint=HINT) as view:
            throttled = ThrottledView(lambda: _look(sweep), view.show, lambda: None)
            while sweep.ledger.held():
                began = time.monotonic()
                throttled.changed()
                sleep(max(EVERY_S, LOOK_SHARE * (time.monotonic() - began)))


def _look(sweep: Opened) -> Snapshot:
    found = sweep.overview()
    return Snapshot(found.progress(held=True), 0.0, "", found.outlook(held=True, now=time.time()))
