"""A sweep that was launched and in which nothing has happened yet."""

from pathlib import Path

from orchestrator.drivers.launch_folder import Setup, publish
from orchestrator.identity import SweepFolder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan


def launched(root: Path, plan: Plan) -> SweepFolder:
    """Its folder in `root / "runs"`, with an empty ledger."""
    folder = SweepFolder(root / "runs" / plan.name)
    publish(plan, folder, "", {}, Setup(root / "data"))
    with Ledger.open(folder.ledger_url, plan.name, create=True):
        return folder
