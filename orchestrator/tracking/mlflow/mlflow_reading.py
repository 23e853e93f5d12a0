"""What MLflow holds of a sweep, read without writing anything."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from orchestrator.files.sqlite_files import file_of, snapshot, url_of
from orchestrator.tracking.mlflow.mlflow_runs import Stored, open_store, outages, runs_of
from search_spaces.wording import amount

History = list[tuple[int, float]]
"""Step and value of every point of a metric, steps increasing."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One run with all its points."""

    run: Stored
    histories: dict[str, History]


def read_runs(
    uri: str, experiment: str, ledger_uid: str, on_progress: Callable[[str], None] = lambda _: None
) -> list[Kept] | None:
    """All runs made from a ledger; None if there is no such database or experiment. Raises Outage."""
    with outages(uri), _looked_at(uri) as place:
        if place is None:
            return None
        with TemporaryDirectory(prefix="haltsweep-verify-") as artifacts:
            store = open_store(place, Path(artifacts))
            try:
                found = store.get_experiment_by_name(experiment)
                if found is None:
                    return None
                runs = list(runs_of(store, str(found.experiment_id), ledger_uid))
                return [_kept(store, run, on_progress, len(runs) - number) for number, run in enumerate(runs)]
            finally:
                if (engine := getattr(store, "engine", None)) is not None:
                    engine.dispose()


@contextmanager
def _looked_at(uri: str) -> Iterator[str | None]:
    """A place that may be opened as one likes; None if there is nothing."""
    file = file_of(uri)
    if file is None:
        yield uri
        return
    if not file.exists():
        yield None
        return
    with snapshot(file) as copy:
        yield url_of(copy)


def _kept(store: Any, run: Stored, on_progress: Callable[[str], None], left: int) -> Kept:
    on_progress(f"{amount(left, 'run')} to read")
    return Kept(run, {name: sorted(_history(store, run.run_id, name)) for name in run.latest})


def _history(store: Any, run_id: str, name: str) -> Iterator[tuple[int, float]]:
    token = None
    while True:
        page = store.get_metric_history(run_id, name, max_results=None, page_token=token)
        yield from ((metric.step, metric.value) for metric in page)
        token = page.token
        if not token:
            return
