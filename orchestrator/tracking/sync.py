"""Bring MLflow and the Parquet files of a sweep up to date with its ledger."""

import time
from pathlib import Path

from orchestrator.files.redact import redact_url
from orchestrator.identity import SweepFolder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import read_plan
from orchestrator.tracking.inputs import read_inputs
from orchestrator.tracking.mlflow.mlflow_writer import MlflowWriter, OnProgress, WriteCounts
from orchestrator.tracking.parquet import ParquetFiles
from orchestrator.tracking.state import TrackingState, projection_lock, write_state
from orchestrator.tracking.summary import ArmSummary

LOCK_WAIT_S = 10.0


def sync(
    folder: SweepFolder,
    ledger: Ledger,
    uri: str,
    summary: ArmSummary | None = None,
    on_progress: OnProgress = lambda _: None,
) -> WriteCounts:
    """Bring the Parquet files and the MLflow store at `uri` up to date; return the number of written items.

    The Parquet files are written first, so that an MLflow outage does not delay them.

    Args:
        folder: Folder of the sweep, with its report and files, which become artifacts.
        ledger: Ledger of the sweep.
        uri: MLflow's URI of the store.
        summary: Metrics and tags of the arms' runs.
        on_progress: Called with the next step, before the Parquet files and before each request to MLflow.

    Raises:
        StoreError: A store fails (`TrackingOutage` for MLflow), or the sweep's own process is writing.
    """
    plan = read_plan(folder)

    def show_request(request: str) -> None:
        on_progress(f"waiting for MLflow: {request}")

    with projection_lock(folder.root, LOCK_WAIT_S):
        on_progress("writing the Parquet files")
        counts = WriteCounts(files=ParquetFiles(folder, plan, ledger).update())
        writer = MlflowWriter(
            uri, plan, ledger, artifact_root(folder), show_request, inputs=read_inputs(folder)
        )
        counts += writer.update()
        if summary is not None:
            counts += writer.publish(summary)
        counts += writer.upload(folder)
        position = writer.position
        write_state(folder, TrackingState(position, "", time.time(), position, store=redact_url(uri)))
        return counts


def artifact_root(folder: SweepFolder) -> Path:
    """Return the folder for artifacts of runs in a database, which sweeps of one folder share."""
    return folder.root.resolve().parent / "mlartifacts"
