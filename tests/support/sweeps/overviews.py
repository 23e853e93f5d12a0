"""Overviews of sweeps whose records are known."""

from collections import Counter
from collections.abc import Iterable

from orchestrator.conductor.overview import EndedTrialTotals, Overview
from orchestrator.plan.types import Plan
from orchestrator.trials import Record


def overview(plan: Plan, records: Iterable[Record], ended: EndedTrialTotals | None = None) -> Overview:
    """Return what `status` would show."""
    planned = Counter((trial.arm, trial.phase) for trial in plan.trials)
    return Overview.from_records(plan, planned, records, ended)
