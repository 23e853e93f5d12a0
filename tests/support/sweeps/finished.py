"""Finished sweeps on disk with an invented history, without training."""

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
    """Write a sweep to `root / "runs"` of which every trial has ended; with `seed` 0 all have finished.

    Confirm trials also measure `test/score`.
    """
    folder = launched(root, plan, checkpoints=checkpoints)
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        lease = ledger.claim(DEAD)
        ledger.append(list(with_test_scores(plan, history(plan, seed))), lease)
        ledger.release(lease)
    return folder


def with_test_scores(plan: Plan, events: Iterator[Event]) -> Iterator[Event]:
    """Yield the events, with a test score in the measurements of confirm trials."""
    confirm_ids = {trial.trial_id for trial in plan.trials if trial.phase == "confirm"}
    for event in events:
        if event.kind is EventKind.MEASURED and event.trial_id in confirm_ids:
            metrics = event.payload["metrics"]
            changed = {"metrics": {**metrics, "test/score": metrics["valid/score"]}}
            yield replace(event, payload={**event.payload, **changed})
        else:
            yield event
