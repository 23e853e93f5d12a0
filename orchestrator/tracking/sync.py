"""Everything that is made from the ledger, up to date in one call."""

import time
from contextlib import closing
from pathlib import Path

from orchestrator.files.redact import redact_url
from orchestrator.identity import SweepFolder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import read_plan
from orchestrator.tracking.inputs import read_inputs
from orchestrator.tracking.mlflow.mlflow_writer import Counts, MlflowWriter, OnAsk
from orchestrator.tracking.parquet import ParquetFiles
from orchestrator.tracking.state import TrackingState, projection_lock, write_state
from orchestrator.tracking.summary import ArmSummary

LOCK_WAIT_S = 10.0


def sync(
    folder: SweepFolder,
    ledger: Ledger,
    uri: str,
    summary: ArmSummary | None = None,
    on_progress: OnAsk = lambda _: None,
) -> Counts:
    """Bring Parquet and the MLflow at `uri` in line with the ledger; what was written, all 0 if nothing was.

    Metrics and tags of `summary` become those of the arms' runs; the report's folder and the sweep's files
    become artifacts of the sweep's run. Parquet comes first: an MLflow outage does not keep it back. Raises
    StoreError (an Outage if it was MLflow) if a store fails or the sweep's own process is still writing.
    """
    plan = read_plan(folder)
    with projection_lock(folder.root, LOCK_WAIT_S):
        written = Counts(files=ParquetFiles(folder, plan, ledger).update())
        made = MlflowWriter(uri, plan, ledger, artifact_root(folder), on_progress, inputs=read_inputs(folder))
        with closing(made) as writer:
            written += writer.update()
            if summary is not None:
                written += writer.publish(summary)
            written += writer.upload(folder)
            position = writer.position
        write_state(folder, TrackingState(position, "", time.time(), position, store=redact_url(uri)))
        return written


def artifact_root(folder: SweepFolder) -> Path:
    """Where an MLflow without a server keeps artifacts: beside the sweeps that share it."""
    return folder.root.resolve().parent / "mlartifacts"
