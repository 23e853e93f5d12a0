"""Delete the runs of one sweep from MLflow, and no other runs."""

import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.files.sqlite_files import sqlite_file
from orchestrator.tracking.mlflow.mlflow_runs import check_uri, find_runs, is_server, open_client, outages
from orchestrator.tracking.mlflow.moved_store import follow_move


def delete_runs(uri: str, experiment: str, ledger_uid: str, artifacts: Path) -> int:
    """Delete the runs of a ledger, and their experiment if it has no other runs; return their number.

    Artifacts below `artifacts` are deleted. MLflow only marks the runs as deleted until `mlflow gc`.

    Raises:
        InputError: `check_uri` refuses the URI.
        TrackingOutage: MLflow is unreachable.
    """
    check_uri(uri)
    file = sqlite_file(uri)
    if file is not None and not file.is_file():
        return 0
    with outages(uri):
        client = open_client(uri, artifacts)
        follow_move(uri, artifacts)
        mlflow_experiment = client.get_experiment_by_name(experiment)
        if mlflow_experiment is None or mlflow_experiment.lifecycle_stage == "deleted":
            return 0
        runs = list(find_runs(client, mlflow_experiment.experiment_id, ledger_uid))
        for run in runs:
            client.delete_run(run.run_id)
            if not is_server(uri):
                _delete_folder(run.artifact_uri, artifacts)
        if not client.search_runs([mlflow_experiment.experiment_id], max_results=1):
            # Rename the experiment, since a new sweep with its name would restore it with its deleted runs.
            client.rename_experiment(
                mlflow_experiment.experiment_id, f"{experiment} (deleted {mlflow_experiment.experiment_id})"
            )
            client.delete_experiment(mlflow_experiment.experiment_id)
            if not is_server(uri):
                _delete_folder(mlflow_experiment.artifact_location, artifacts)
        return len(runs)


def _delete_folder(uri: str, artifacts: Path) -> None:
    """Delete the folder at `uri` if it is below `artifacts`."""
    parts = urlsplit(uri)
    folder = Path(unquote(parts.path))
    if parts.scheme == "file" and folder.resolve() == folder and artifacts.resolve() in folder.parents:
        shutil.rmtree(folder, ignore_errors=True)
