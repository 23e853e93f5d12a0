"""A launched sweep of which no trial has started."""

from pathlib import Path

from orchestrator.execution.sweep.launch_folder import Setup, create_sweep_folder
from orchestrator.identity import SweepFolder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan


def launched(
    root: Path,
    plan: Plan,
    storage: str | None = None,
    tracking: str | None = None,
    checkpoints: str | None = None,
) -> SweepFolder:
    """Write a sweep to `root / "runs"`, with an empty ledger in its folder or in `storage`."""
    folder = SweepFolder(root / "runs" / plan.name)
    setup = Setup(root / "data", storage=storage, tracking_uri=tracking, checkpoints=checkpoints)
    create_sweep_folder(plan, folder, "", {}, setup)
    with Ledger.open(setup.ledger_url(folder), plan.name, create=True):
        return folder
