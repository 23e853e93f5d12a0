"""`sync` names the step that is running: the Parquet files first, then requests to MLflow."""

from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.tracking.sync import sync
from tests.support.sweeps.histories import history


def test_sync_names_each_step(folder: SweepFolder, ledger: Ledger, uri: str, plan: Plan) -> None:
    lease = ledger.claim(Holder.current())
    ledger.append(list(history(plan, 1)), lease)
    ledger.release(lease)
    steps: list[str] = []
    sync(folder, ledger, uri, on_progress=steps.append)
    assert steps[0] == "writing the Parquet files"
    assert len(steps) > 2
    assert all(step.startswith("waiting for MLflow: ") for step in steps[1:])
