"""Read the runs of a sweep in MLflow without writing anything."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.files.sqlite_files import copy_database, sqlite_file, sqlite_url
from orchestrator.tracking.mlflow.mlflow_runs import StoredRunState, find_runs, open_client, outages
from search_spaces.wording import amount


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run in MLflow with all of its points."""

    run: StoredRunState
    histories: dict[str, list[tuple[int, float]]]
    """Step and value of every point of each metric, sorted by step."""


def read_runs(
    uri: str, experiment: str, ledger_uid: str, on_progress: Callable[[str], None] = lambda _: None
) -> list[StoredRun] | None:
    """Return all runs of a ledger; None if database or experiment are missing. Raise `TrackingOutage`."""
    with outages(uri), _readable_uri(uri) as place:
        if place is None:
            return None
        client = open_client(place, Path("unused"))
        mlflow_experiment = client.get_experiment_by_name(experiment)
        if mlflow_experiment is None:
            return None
        stored_runs = []
        runs = list(find_runs(client, mlflow_experiment.experiment_id, ledger_uid))
        for number, run in enumerate(runs):
            on_progress(f"{amount(len(runs) - number, 'run')} to read")
            points = {name: client.get_metric_history(run.run_id, name) for name in run.latest}
            histories = {name: sorted((each.step, each.value) for each in points[name]) for name in points}
            stored_runs.append(StoredRun(run, histories))
        return stored_runs


@contextmanager
def _readable_uri(uri: str) -> Iterator[str | None]:
    """Yield a URI that is safe to open: of a copy of a database file, or None if the file is missing."""
    file = sqlite_file(uri)
    if file is None:
        yield uri
    elif not file.exists():
        yield None
    else:
        with copy_database(file) as copy:
            yield sqlite_url(copy)
