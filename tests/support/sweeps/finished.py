"""Sweeps with a made-up history, on disk: nothing is trained."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from tests.support.sweeps.histories import DEAD, history
from tests.support.sweeps.launched import launched


def finished(root: Path, plan: Plan, seed: int = 0, checkpoints: str | None = None) -> SweepFolder:
    """A sweep in `root / "runs"` of which every trial has ended; with `seed` 0 all have finished.

    Confirm trials measure `test/score` beside what made-up trials measure.
    """
    folder = launched(root, plan, checkpoints=checkpoints)
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        lease = ledger.claim(DEAD)
        ledger.append(list(tested(plan, history(plan, seed))), lease)
        ledger.release(lease)
    return folder


def tested(plan: Plan, events: Iterator[Event]) -> Iterator[Event]:
    """The same events, with what confirm trials measure on the test split."""
    confirmed = {each.trial_id for each in plan.trials if each.phase == "confirm"}
    for event in events:
        if event.kind is EventKind.MEASURED and event.trial_id in confirmed:
            metrics = event.payload["metrics"]
            more = {"metrics": {**metrics, "test/score": metrics["valid/score"]}}
            yield replace(event, payload={**event.payload, **more})
        else:
            yield event
