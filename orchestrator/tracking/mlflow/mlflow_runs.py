"""MLflow's tracking store, as little of it as a projection needs.

The store is used directly: `MlflowClient` reads a run back before it ends it, and prints.
"""

import logging
import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from orchestrator.errors import InputError, StoreError
from orchestrator.files import disk
from orchestrator.files.abandoned import clear_folders
from orchestrator.files.known_addresses import require_known
from orchestrator.files.redact import MASK, needs_encoding, redact_url
from orchestrator.files.sqlite_files import file_of, url_for_mlflow, url_of
from orchestrator.ledger.sql.engine import MOUNTS, hurried, refuse_network_file_system, relax
from orchestrator.tracking.inputs import Input
from orchestrator.tracking.mlflow.arms_view import view_tags
from orchestrator.tracking.mlflow.desired_runs import DesiredRun, Status
from orchestrator.tracking.mlflow.moved_store import follow_move
from orchestrator.tracking.mlflow.points import PREFIX, Point, batches
from trainables.atomic import PRIVATE, flush
from trainables.process_identity import process_label

MOST_METRICS = 800
MOST_PARAMS = MOST_TAGS = 100
"""MLflow takes 1000 items a request, at most 100 of them parameters and 100 tags."""
MOST_PARAM_TEXT = 6000
PAGE = 1000
CONTEXT = "mlflow.data.context"
"""MLflow's tag for what data were used for."""
REFUSED = re.compile(r"error code (?P<code>401|403)\b|\A(?P<word>UNAUTHENTICATED|PERMISSION_DENIED):")
"""In what MLflow raises for an answer of its server: not logged in, or not allowed to."""
CREDENTIALS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
MOST_OF_CAUSE = 600
"""Characters: a page that answers in place of MLflow is quoted by it whole."""
SERVER_SCHEMES = ("http", "https", "databricks")
DATABASE_SCHEMES = ("sqlite", "postgresql", "mysql", "mssql")
SQLITE_BEGINS = b"SQLite format 3\0"
TABLES = {"alembic_version", "experiments", "runs"}
"""Some tables of every MLflow store."""
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    # Outages are waited for by the projection, which can say so; a request gives up soon.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


_DAMAGED = "its database is damaged: keep a copy of it and restore it from a backup, or move it away"
_REMEDIES = {
    "out-of-date database schema": (
        "its database was made by another version of MLflow: use that version, or upgrade an older database"
    ),
    "malformed": _DAMAGED,
    "not a database": _DAMAGED,
    "database is locked": "another process has been writing to it for long: wait for that process or stop it",
    "readonly database": "make the file and its folder writable for this user",
    "disk is full": disk.FULL,
    "not in a valid JSON format": (
        "what answers there is no MLflow, but perhaps a page to log in or a proxy: give the address of MLflow"
    ),
}
"""What to do about what does not mend itself, by words of the error."""


class TrackingOutage(StoreError):
    """MLflow could not be reached or refused a request; nothing is lost, the projection catches up."""


@dataclass(slots=True)
class Stored:
    """One run as it is in MLflow."""

    run_id: str
    artifact_uri: str
    status: str = "RUNNING"
    end_ms: int | None = None
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    latest: dict[str, tuple[int, float, int]] = field(default_factory=dict)
    """Newest step of each metric, with its value and its time in Unix milliseconds."""
    inputs: set[tuple[str, str, str]] = field(default_factory=set)
    """Name, digest and context of the data that it read."""

    @property
    def key(self) -> str:
        """The desired this run belongs to."""
        kind = self.tags.get(f"{PREFIX}kind")
        return {
            "arm": f"arm/{self.tags.get(f'{PREFIX}arm')}",
            "trial": f"trial/{self.tags.get(f'{PREFIX}trial')}",
        }.get(kind or "", str(kind))


def default_uri(sweep_folder: Path) -> str:
    """The embedded store that all sweeps of one runs folder share."""
    return url_of(sweep_folder.resolve().parent / "mlflow.db")


def check_uri(uri: str, mounts: Path = MOUNTS) -> None:
    """Raises InputError for a place that MLflow cannot be trusted with."""
    if needs_encoding(uri):
        raise InputError(
            "user and password in --tracking must be percent-encoded (@ as %40, / as %2F, a space as %20), "
            f"got {redact_url(uri)!r}; encode them"
        )
    try:
        scheme, host = urlsplit(uri).scheme, urlsplit(uri).hostname
        urlsplit(uri).port  # noqa: B018 - raises if it is no number
    except ValueError as error:
        raise InputError(
            f"an MLflow store must be at a URL, got {redact_url(uri)!r}; "
            "use sqlite:////absolute/path/mlflow.db or http://HOST:PORT"
        ) from error
    if scheme in ("", "file") and uri != "databricks":
        raise InputError(
            f"an MLflow store must be a database or a server, and {redact_url(uri)!r} is a file store, which "
            "MLflow no longer maintains; use sqlite:////absolute/path/mlflow.db or http://HOST:PORT"
        )
    if uri != "databricks" and scheme.partition("+")[0] not in (*SERVER_SCHEMES, *DATABASE_SCHEMES):
        raise InputError(
            f"an MLflow store must be one of {', '.join((*SERVER_SCHEMES, *DATABASE_SCHEMES))}, got "
            f"{redact_url(uri)!r}; use sqlite:////absolute/path/mlflow.db or http://HOST:PORT"
        )
    if scheme in ("http", "https") and not host:
        raise InputError(f"an MLflow server must have a host, got {redact_url(uri)!r}; use http://HOST:PORT")
    if scheme.partition("+")[0] == "sqlite" and (urlsplit(uri).netloc or _in_memory(uri)):
        raise InputError(
            "an MLflow store in SQLite must be a file, without user or host, got "
            f"{redact_url(uri)!r}; use sqlite:////absolute/path/mlflow.db"
        )
    if (file := file_of(uri)) is not None:
        refuse_network_file_system(file.resolve(), mounts)
        _refuse_other_files(file.resolve())


def _in_memory(uri: str) -> bool:
    """Whether it is a database that ends with the process."""
    return urlsplit(uri).path.removeprefix("/") in ("", ":memory:")


def _refuse_other_files(file: Path) -> None:
    """Raises InputError for what is there and no SQLite database: MLflow would fail on it to the end.

    To a database of another program MLflow would add its tables.
    """
    if file.is_file():
        with file.open("rb") as stream:
            begin = stream.read(len(SQLITE_BEGINS))
        if begin in (b"", SQLITE_BEGINS):
            if (tables := _tables(file)) and not tables >= TABLES:
                raise InputError(
                    f"an MLflow store must have tables {', '.join(sorted(TABLES))}, and {str(file)!r} is a "
                    "database of another program; choose another file"
                )
            return
    elif not file.exists():
        return
    raise InputError(
        f"an MLflow store must be a SQLite database, and {str(file)!r} is something else; choose another file"
    )


def _tables(file: Path) -> set[str]:
    """Return the names of the tables in a SQLite file; none for one that cannot be read."""
    try:
        # Immutable: SQLite makes no files beside it, and leaves its journal alone.
        place = f"{file.absolute().as_uri()}?immutable=1"
        with closing(sqlite3.connect(place, uri=True)) as connection:
            return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.Error:  # whoever opens it reports what is wrong
        return set()


class RunStore:
    """The runs of one experiment."""

    def __init__(self, uri: str, experiment: str, artifacts: Path) -> None:
        """Connect, and create the experiment unless it is there.

        `artifacts` holds the files of a store that has no server to take them. Raises InputError for a file
        store, TrackingOutage if MLflow cannot be reached.
        """
        check_uri(uri)
        self._uri = uri
        # Texts of trials are as private here as in the sweep's folder.
        mode = _mode_of(artifacts.parent / experiment)
        with outages(uri):
            follow_move(uri, artifacts)
            self._store = open_store(uri, artifacts, mode & 0o666)
            self._is_local = urlsplit(uri).scheme not in SERVER_SCHEMES and uri != "databricks"
            files = artifacts.resolve() / experiment if self._is_local else None
            self.experiment_id = self._experiment(experiment, files, mode)

    def search(self, ledger_uid: str) -> dict[str, Stored]:
        """The runs made from that ledger, by their desired's key.

        One that is there twice, because a server took a request whose answer was lost, is deleted but for
        the fuller copy.
        """
        found: dict[str, Stored] = {}
        with outages(self._uri):
            runs = runs_of(self._store, self.experiment_id, ledger_uid)
            for stored in sorted(runs, key=lambda one: (-len(one.latest), one.run_id)):
                if stored.key in found:
                    self._store.delete_run(stored.run_id)
                else:
                    found[stored.key] = stored
        return found

    def create(self, desired: DesiredRun, tags: Mapping[str, str]) -> Stored:
        """A new run, open, with its tags."""
        from mlflow.entities import RunTag

        with outages(self._uri):
            run = self._store.create_run(
                experiment_id=self.experiment_id,
                user_id=tags.get("mlflow.user", "unknown"),
                start_time=desired.start_ms,
                tags=[RunTag(key, value) for key, value in tags.items()],
                run_name=desired.name,
            )
        return Stored(run.info.run_id, run.info.artifact_uri, tags=dict(tags))

    def log(
        self, stored: Stored, points: Sequence[Point], params: Mapping[str, str], tags: Mapping[str, str]
    ) -> None:
        """Write in as few requests as MLflow's limits allow; `stored` says afterwards what is there."""
        from mlflow.entities import Metric, Param, RunTag

        parts = zip_longest(
            batches(points, MOST_METRICS),
            _chunks(params, MOST_PARAMS),
            _chunks(tags, MOST_TAGS),
            fillvalue=(),
        )
        with outages(self._uri):
            for some_points, some_params, some_tags in parts:
                self._store.log_batch(
                    stored.run_id,
                    [Metric(point.key, point.value, point.at_ms, point.step) for point in some_points],
                    [Param(key, value[:MOST_PARAM_TEXT]) for key, value in some_params],
                    [RunTag(key, value) for key, value in some_tags],
                )
                stored.latest |= {point.key: (point.step, point.value, point.at_ms) for point in some_points}
                stored.params |= {key: value[:MOST_PARAM_TEXT] for key, value in some_params}
                stored.tags |= dict(some_tags)
        if long := {key: value for key, value in params.items() if len(value) > MOST_PARAM_TEXT}:
            self.upload_texts(stored, long)

    def log_inputs(self, stored: Stored, inputs: Sequence[Input]) -> None:
        """The data that a run read."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        made = [
            DatasetInput(
                Dataset(each.name, each.digest, "local", each.source), [InputTag(CONTEXT, each.context)]
            )
            for each in inputs
        ]
        with outages(self._uri):
            self._store.log_inputs(stored.run_id, made)
        stored.inputs |= {(each.name, each.digest, each.context) for each in inputs}

    def end(self, stored: Stored, status: Status, end_ms: int | None) -> None:
        """Set the status; RUNNING opens a run again."""
        from mlflow.entities import RunStatus

        with outages(self._uri):
            self._store.update_run_info(stored.run_id, RunStatus.from_string(status), end_ms, None)
        stored.status = status
        stored.end_ms = stored.end_ms if end_ms is None else end_ms

    def upload(self, stored: Stored, file: Path, folder: str) -> None:
        """Put `file` beside the run, under `folder` (empty: at the top)."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        if self._is_local:  # an experiment that somebody else made may name any server
            require_known(stored.artifact_uri, "--tracking")
        with outages(self._uri):
            repository: Any = get_artifact_repository(stored.artifact_uri, tracking_uri=self._uri)
            repository.log_artifact(str(file), folder or None)

    def upload_texts(self, stored: Stored, texts: Mapping[str, str]) -> None:
        """Parameters longer than MLflow keeps, whole, one file each."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in texts.items():
                file = Path(folder) / f"{name.replace('/', '_')}.txt"
                file.write_text(text, encoding="utf-8")
                self.upload(stored, file, "params")

    def close(self) -> None:
        """Close the connections of a database; a server has none."""
        engine = getattr(self._store, "engine", None)
        if engine is not None:
            engine.dispose()

    def _experiment(self, name: str, files: Path | None, mode: int) -> str:
        """Return the id of the experiment; a new one gets the folder `files`, with `mode`."""
        from mlflow.entities import ExperimentTag
        from mlflow.exceptions import MlflowException

        found = self._store.get_experiment_by_name(name)
        if found is None:
            try:
                # The kind spares the user MLflow's question whether these are agents or models.
                kind = ExperimentTag("mlflow.experimentKind", "custom_model_development")
                location = files.as_uri() if files is not None else None
                made = str(self._store.create_experiment(name, location, tags=[kind]))
                if files is not None:
                    files.mkdir(mode=mode, parents=True, exist_ok=True)
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                found = self._store.get_experiment_by_name(name)
            else:
                self._show_arms(made, {})
                return made
        if found.lifecycle_stage == "deleted":
            self._store.restore_experiment(found.experiment_id)
        self._show_arms(str(found.experiment_id), found.tags)
        return str(found.experiment_id)

    def _show_arms(self, experiment_id: str, present: Mapping[str, str]) -> None:
        """Tags by which MLflow's page offers the view of the arms, as far as they are missing."""
        from mlflow.entities import ExperimentTag

        for key, value in view_tags(experiment_id, present).items():
            self._store.set_experiment_tag(experiment_id, ExperimentTag(key, value))


def runs_of(store: Any, experiment_id: str, ledger_uid: str) -> Iterator[Stored]:
    """Every run that was made from a ledger."""
    from mlflow.entities import ViewType

    ours = f"tags.`{PREFIX}ledger` = '{ledger_uid}'"
    token: str | None = None
    while True:
        page = store.search_runs(
            [experiment_id], ours, ViewType.ACTIVE_ONLY, max_results=PAGE, page_token=token
        )
        yield from map(_stored, page)
        token = page.token
        if not token:
            return


@contextmanager
def outages(uri: str) -> Iterator[None]:
    """Raises TrackingOutage for whatever MLflow, its database or the network raises inside."""
    try:
        yield
    except Exception as error:
        # Its stores raise their driver's, their HTTP library's and their own errors alike.
        cause = _cause(error)
        if (refusal := REFUSED.search(str(error))) is not None:
            raise TrackingOutage(
                f"MLflow at {redact_url(uri)} must take the user and password it is given, and refuses them "
                f"({refusal['code'] or refusal['word']}); give others, as http://USER:PASSWORD@HOST:PORT in "
                "--tracking or in $MLFLOW_TRACKING_USERNAME and $MLFLOW_TRACKING_PASSWORD: nothing is lost, "
                "`haltsweep sync` catches up"
            ) from error
        remedy = next((do for part, do in _REMEDIES.items() if part in str(error)), None)
        raise TrackingOutage(
            f"MLflow at {redact_url(uri)} failed ({cause}); nothing is lost"
            f"{f': {remedy}, then' if remedy else ','} `haltsweep sync` catches up"
            f"{'' if remedy else ' once it answers again'}"
        ) from error


def _cause(error: Exception) -> str:
    """What was raised, in a line, without what the environment has for the server: that may quote it."""
    text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    for value in filter(None, map(os.environ.get, CREDENTIALS)):
        text = text.replace(value, MASK)
    return text if len(text) <= MOST_OF_CAUSE else f"{text[:MOST_OF_CAUSE]}..."


def _mode_of(folder: Path) -> int:
    """Return the permissions of a sweep's folder; those of a private one if it is not there."""
    try:
        return folder.stat().st_mode & 0o777
    except OSError:
        return 0o700


def open_store(uri: str, artifacts: Path, mode: int = PRIVATE) -> Any:
    """MLflow's own store; an SQLite database that is not there is made, with `mode`."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    for name in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if (file := file_of(uri)) is not None:
        _make_database(file, artifacts, mode)
    from mlflow.tracking._tracking_service import utils

    tracking: Any = utils
    store = tracking._get_store(url_for_mlflow(uri), artifacts.resolve().as_uri())
    if uri.startswith("sqlite:"):
        relax(store.engine)
    return store


def _make_database(file: Path, artifacts: Path, mode: int) -> None:
    """A database with MLflow's tables, unless there is one.

    MLflow makes them in many steps and cannot go on after half of them: a full disk or a kill would leave a
    file that is of no use to anybody. So they are made elsewhere and put in place whole.
    """
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    clear_folders(file.parent, f".{file.name}-")  # of processes that were killed here
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    with tempfile.TemporaryDirectory(prefix=f".{file.name}-{process_label()}-", dir=file.parent) as folder:
        fresh = Path(folder) / file.name
        make: Any = SqlAlchemyStore
        with hurried(fresh):  # MLflow makes its tables in hundreds of transactions
            make(url_for_mlflow(url_of(fresh)), artifacts.resolve().as_uri()).engine.dispose()
        with sqlite3.connect(fresh) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        connection.close()
        fresh.chmod(mode)
        flush(fresh)
        try:
            # Not renamed: another sweep may have been faster, and writes into its file already.
            file.hardlink_to(fresh)
        except FileExistsError:
            return
        except OSError:  # a file system without hard links
            fresh.rename(file)


def _stored(run: Any) -> Stored:
    # Only the private list has the steps, and asking for each metric's history is a request a metric.
    latest = {metric.key: (metric.step, metric.value, metric.timestamp) for metric in run.data._metric_objs}
    return Stored(
        run_id=run.info.run_id,
        artifact_uri=run.info.artifact_uri,
        status=run.info.status,
        end_ms=run.info.end_time,
        tags=dict(run.data.tags),
        params=dict(run.data.params),
        latest=latest,
        inputs={
            (each.dataset.name, each.dataset.digest, tag.value)
            for each in (run.inputs.dataset_inputs if run.inputs else ())
            for tag in each.tags
            if tag.key == CONTEXT
        },
    )


def _chunks(values: Mapping[str, str], most: int) -> list[list[tuple[str, str]]]:
    items = list(values.items())
    return [items[at : at + most] for at in range(0, len(items), most)]
