"""Takes the runs of one sweep out of MLflow, and nothing of anybody else's."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from orchestrator.files.sqlite_files import file_of
from orchestrator.tracking.mlflow.mlflow_runs import PAGE, check_uri, open_store, outages
from orchestrator.tracking.mlflow.moved_store import follow_move
from orchestrator.tracking.mlflow.points import PREFIX


def count_runs(uri: str, experiment: str, ledger_uid: str, artifacts: Path) -> int:
    """How many runs `delete_runs` would delete. Raises as that does."""
    return _each(uri, experiment, ledger_uid, artifacts, delete=False)


def delete_runs(uri: str, experiment: str, ledger_uid: str, artifacts: Path) -> int:
    """Delete the runs made from that ledger, and their experiment if it has no others; how many that were.

    A database forgets them for good, files in `artifacts` too; a server only marks runs as deleted, until
    `mlflow gc`. What is gone already is no error. Raises Outage if MLflow cannot be reached.
    """
    return _each(uri, experiment, ledger_uid, artifacts, delete=True)


def _each(uri: str, experiment: str, ledger_uid: str, artifacts: Path, *, delete: bool) -> int:
    check_uri(uri)
    file = file_of(uri)
    if file is not None and not file.is_file():
        return 0
    with outages(uri):
        if delete:
            follow_move(uri, artifacts)
        store = open_store(uri, artifacts)
        try:
            found = store.get_experiment_by_name(experiment)
            if found is None:
                return 0
            ours = f"tags.`{PREFIX}ledger` = '{ledger_uid}'"
            runs = list(_runs(store, found.experiment_id, ours))
            if delete:
                for run in runs:
                    _delete_run(store, run, artifacts)
                _delete_experiment_if_empty(store, found, artifacts)
            return len(runs)
        finally:
            engine = getattr(store, "engine", None)
            if engine is not None:
                engine.dispose()


def _runs(store: Any, experiment_id: str, which: str) -> Iterator[Any]:
    from mlflow.entities import ViewType

    token: str | None = None
    while True:
        page = store.search_runs([experiment_id], which, ViewType.ALL, max_results=PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _delete_run(store: Any, run: Any, artifacts: Path) -> None:
    if run.info.lifecycle_stage != "deleted":
        store.delete_run(run.info.run_id)
    if _is_database(store):
        # As `mlflow gc` does.
        store._hard_delete_run(run.info.run_id)
        _delete_files(run.info.artifact_uri, artifacts)


def _delete_experiment_if_empty(store: Any, experiment: Any, artifacts: Path) -> None:
    if next(_runs(store, experiment.experiment_id, ""), None) is not None:
        return
    if experiment.lifecycle_stage != "deleted":
        store.delete_experiment(experiment.experiment_id)
    if _is_database(store):
        store._hard_delete_experiment(experiment.experiment_id)
        _delete_files(experiment.artifact_location, artifacts)


def _is_database(store: Any) -> bool:
    return hasattr(store, "engine")


def _delete_files(uri: str, artifacts: Path) -> None:
    """The folder that `uri` names, if it is one below `artifacts`: elsewhere nothing is ours."""
    parts = urlsplit(uri)
    folder = Path(unquote(parts.path))
    if parts.scheme == "file" and folder.resolve() == folder and artifacts.resolve() in folder.parents:
        shutil.rmtree(folder, ignore_errors=True)
