"""Access MLflow's tracking store through its public client."""

import logging
import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.errors import InputError, StoreError
from orchestrator.files import disk_errors as disk
from orchestrator.files.known_addresses import require_known
from orchestrator.files.redact import needs_encoding, redact, redact_url
from orchestrator.files.sqlite_files import sqlite_file, sqlite_url, url_for_mlflow
from orchestrator.ledger.sql.engine import MOUNTS, refuse_network_file_system
from orchestrator.tracking.inputs import Input
from orchestrator.tracking.mlflow.desired_runs import DesiredRun, Status
from orchestrator.tracking.mlflow.moved_store import follow_move
from orchestrator.tracking.mlflow.points import PREFIX, Point
from trainables.atomic import PRIVATE, write_atomically
from trainables.process_identity import process_label

if TYPE_CHECKING:
    from mlflow import MlflowClient

PAGE = 1000
CONTEXT = "mlflow.data.context"
"""Tag of MLflow for the use of a dataset: train, valid or test."""
SERVER_SCHEMES = ("http", "https", "databricks")
DATABASE_SCHEMES = ("sqlite", "postgresql", "mysql", "mssql")
TABLES = {"alembic_version", "experiments", "runs"}
"""Tables that every MLflow store has."""
SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # A request gives up soon, since the projection itself waits for the end of outages and reports them.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder is made in it  # nosec B108
"""Folder in memory, used because MLflow creates its tables in hundreds of transactions."""
_REFUSED = re.compile(r"error code (?P<code>401|403)\b|\A(?P<word>UNAUTHENTICATED|PERMISSION_DENIED):")
"""Pattern of MLflow's errors for requests with missing or wrong credentials."""
_MAX_CAUSE = 600
"""Maximum number of characters of an error's cause, since MLflow may quote complete pages."""
_DAMAGED = "its database is damaged: keep a copy of it and restore it from a backup, or move it away"
_REMEDIES = {
    "out-of-date database schema": (
        "another version of MLflow created its database: use that version, or upgrade an older database"
    ),
    "malformed": _DAMAGED,
    "not a database": _DAMAGED,
    "database is locked": "another process holds a long write lock: wait for that process or stop it",
    "readonly database": "make the file and its folder writable for this user",
    "disk is full": disk.FULL,
    "not in a valid JSON format": (
        "the server at this address is not MLflow, perhaps a login page or proxy: give the address of MLflow"
    ),
}
"""Remedies for permanent errors, by a part of the error's text."""


class TrackingOutage(StoreError):
    """Raised if MLflow is unreachable or refuses a request; the ledger still has all data."""


@dataclass(slots=True)
class StoredRunState:
    """State of one run in MLflow."""

    run_id: str
    artifact_uri: str
    status: str = "RUNNING"
    end_ms: int | None = None
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    latest: dict[str, tuple[int, float, int]] = field(default_factory=dict)
    """Step, value and time in Unix milliseconds of the newest point of each metric."""
    inputs: set[tuple[str, str, str]] = field(default_factory=set)
    """Name, digest and context of the datasets that the run read."""

    @property
    def key(self) -> str:
        """Key of the corresponding `DesiredRun`."""
        kind = self.tags.get(f"{PREFIX}kind")
        return {
            "arm": f"arm/{self.tags.get(f'{PREFIX}arm')}",
            "trial": f"trial/{self.tags.get(f'{PREFIX}trial')}",
        }.get(kind or "", str(kind))


def is_server(uri: str) -> bool:
    """Return whether `uri` denotes an MLflow server rather than a database."""
    return uri == "databricks" or urlsplit(uri).scheme in SERVER_SCHEMES


def check_uri(uri: str, mounts: Path = MOUNTS) -> None:
    """Raise an error for the URI of a store that cannot contain runs.

    Raises:
        InputError: The URI is malformed or of a kind that MLflow does not maintain, or its file is on a
            network file system or belongs to another program.
    """
    masked_uri = repr(redact_url(uri))
    if needs_encoding(uri):
        raise InputError(
            "user and password in --tracking must be percent-encoded (@ as %40, / as %2F, a space as %20), "
            f"got {masked_uri}; encode them"
        )
    try:
        parts = urlsplit(uri)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"an MLflow store must be at a URL, got {masked_uri}; {_examples()}") from error
    scheme = parts.scheme.partition("+")[0]
    if uri == "databricks":
        return
    if scheme in ("", "file"):
        raise InputError(
            f"an MLflow store must be a database or a server, and {masked_uri} is a file store, which MLflow "
            f"no longer maintains; {_examples()}"
        )
    if scheme not in (*SERVER_SCHEMES, *DATABASE_SCHEMES) or (scheme in ("http", "https") and not host):
        schemes = ", ".join((*SERVER_SCHEMES, *DATABASE_SCHEMES))
        raise InputError(f"an MLflow store must be one of {schemes}, got {masked_uri}; {_examples()}")
    if scheme == "sqlite":
        file = sqlite_file(uri)
        if file is None:
            raise InputError(
                f"an MLflow store in SQLite must be a file, without user or host, got {masked_uri}; "
                f"{_examples()}"
            )
        refuse_network_file_system(file.resolve(), mounts)
        _refuse_foreign_file(file.resolve())


def _examples() -> str:
    return "use sqlite:////absolute/path/mlflow.db or http://HOST:PORT"


def _refuse_foreign_file(file: Path) -> None:
    """Raise `InputError` for a file that is no MLflow store, since MLflow would add its tables to it.

    Only SQLite opens the file. Closing it in another way would release the locks that SQLite has on it in
    this process.
    """
    if not file.exists():
        return
    try:
        # Immutable: SQLite creates no files next to the database and ignores its journal.
        place = f"{file.absolute().as_uri()}?immutable=1"
        with closing(sqlite3.connect(place, uri=True)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.Error as error:
        if file.is_file() and error.sqlite_errorname != "SQLITE_NOTADB":
            return  # the connection of the store reports the error
        raise InputError(
            f"an MLflow store must be a SQLite database, and {str(file)!r} is something else; choose another "
            "file"
        ) from error
    if tables and not tables >= TABLES:
        raise InputError(
            f"an MLflow store must have tables {', '.join(sorted(TABLES))}, and {str(file)!r} is a "
            "database of another program; choose another file"
        )


class RunStore:
    """The runs of one experiment in MLflow."""

    def __init__(self, uri: str, experiment: str, artifacts: Path) -> None:
        """Connect, and create the experiment unless it exists.

        Args:
            uri: MLflow's URI of the store.
            experiment: Name of the experiment.
            artifacts: Folder for artifacts of runs in a database. A server stores artifacts itself.

        Raises:
            InputError: `check_uri` refuses the URI.
            TrackingOutage: MLflow is unreachable.
        """
        check_uri(uri)
        self._uri = uri
        # Texts of trials must be as private in MLflow as in the sweep's folder.
        sweep_folder = artifacts.parent / experiment
        mode = sweep_folder.stat().st_mode & 0o777 if sweep_folder.is_dir() else 0o700
        with outages(uri):
            self._client: Any = open_client(uri, artifacts, mode & 0o666)
            follow_move(uri, artifacts)
            folder = None if is_server(uri) else artifacts.resolve() / experiment
            self.experiment_id = self._open_experiment(experiment, folder, mode)

    def tag_experiment(self, name: str, value: str) -> None:
        """Set a tag of the experiment, unless it is set or this user may not."""
        with suppress(Exception):  # errors of MLflow; a tag for display must not stop the writing of results
            if self._client.get_experiment(self.experiment_id).tags.get(name) != value:
                self._client.set_experiment_tag(self.experiment_id, name, value)

    def search(self, ledger_uid: str) -> dict[str, StoredRunState]:
        """Return the runs of a ledger, by their key.

        If a run is stored twice, because the answer to a request was lost, the run with fewer metrics is
        deleted.
        """
        by_key: dict[str, StoredRunState] = {}
        with outages(self._uri):
            runs = find_runs(self._client, self.experiment_id, ledger_uid)
            for run in sorted(runs, key=lambda run: (-len(run.latest), run.run_id)):
                if run.key in by_key:
                    self._client.delete_run(run.run_id)
                else:
                    by_key[run.key] = run
        return by_key

    def create(self, desired: DesiredRun, tags: Mapping[str, str]) -> StoredRunState:
        """Create a run with `tags` and return it."""
        with outages(self._uri):
            run = self._client.create_run(self.experiment_id, desired.start_ms, dict(tags), desired.name)
        return StoredRunState(run.info.run_id, run.info.artifact_uri, tags=dict(tags))

    def log(
        self,
        run_state: StoredRunState,
        points: Sequence[Point],
        params: Mapping[str, str],
        tags: Mapping[str, str],
    ) -> None:
        """Write points, parameters and tags, and record them in `run_state`.

        Steps of a metric must increase. The client writes them in order. So the newest stored step of a
        metric shows which points are written, even after an outage between two requests.
        """
        from mlflow.entities import Metric, Param, RunTag

        with outages(self._uri):
            self._client.log_batch(
                run_state.run_id,
                [Metric(point.key, point.value, point.at_ms, point.step) for point in points],
                [Param(name, value) for name, value in params.items()],
                [RunTag(name, value) for name, value in tags.items()],
                synchronous=True,
            )
            run_state.latest |= {point.key: (point.step, point.value, point.at_ms) for point in points}
            run_state.params |= params
            run_state.tags |= tags

    def log_inputs(self, run_state: StoredRunState, inputs: Sequence[Input]) -> None:
        """Write the datasets that a run read."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        datasets = (Dataset(each.name, each.digest, "local", each.source) for each in inputs)
        tags = ([InputTag(CONTEXT, each.context)] for each in inputs)
        with outages(self._uri):
            self._client.log_inputs(run_state.run_id, list(map(DatasetInput, datasets, tags)))
        run_state.inputs |= {(dataset.name, dataset.digest, dataset.context) for dataset in inputs}

    def set_status(self, run_state: StoredRunState, status: Status, end_ms: int | None) -> None:
        """Set the status of a run; RUNNING reopens it."""
        with outages(self._uri):
            if status == "RUNNING":
                self._client.update_run(run_state.run_id, status)
            else:
                self._client.set_terminated(run_state.run_id, status, end_ms)
        run_state.status = status
        run_state.end_ms = run_state.end_ms if end_ms is None else end_ms

    def upload(self, run_state: StoredRunState, file: Path, folder: str) -> None:
        """Add `file` to the artifacts of a run, in `folder`; at the top if `folder` is empty."""
        if not is_server(self._uri):  # another user's experiment in a shared database may contain any address
            require_known(run_state.artifact_uri, "--tracking")
        with outages(self._uri):
            self._client.log_artifact(run_state.run_id, str(file), folder or None)

    def _open_experiment(self, name: str, folder: Path | None, mode: int) -> str:
        """Return the id of the experiment; a new one stores artifacts in `folder`, created with `mode`."""
        from mlflow.exceptions import MlflowException

        client = self._client
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            # With this tag, MLflow does not ask whether the experiment is about agents or models.
            kind = {"mlflow.experimentKind": "custom_model_development"}
            try:
                client.create_experiment(name, folder.as_uri() if folder is not None else None, kind)
                if folder is not None:
                    folder.mkdir(mode=mode, parents=True, exist_ok=True)
            except MlflowException as error:  # another sweep may have created it at the same time
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            experiment = client.get_experiment_by_name(name)
        if experiment.lifecycle_stage == "deleted":
            client.restore_experiment(experiment.experiment_id)
        return str(experiment.experiment_id)


def find_runs(client: "MlflowClient", experiment_id: str, ledger_uid: str) -> Iterator[StoredRunState]:
    """Yield every active run that was created from a ledger."""
    token: str | None = None
    of_ledger = f"tags.`{PREFIX}ledger` = '{ledger_uid}'"
    while token != "":
        page = client.search_runs([experiment_id], of_ledger, max_results=PAGE, page_token=token)
        yield from map(_to_stored, page)
        token = page.token or ""


@contextmanager
def outages(uri: str) -> Iterator[None]:
    """Raise `TrackingOutage` for any error of MLflow, its database or the network inside the context."""
    try:
        yield
    except Exception as error:
        # MLflow raises its own exceptions and those of its database driver and HTTP library.
        if (refusal := _REFUSED.search(str(error))) is not None:
            raise TrackingOutage(
                f"MLflow at {redact_url(uri)} refuses the user and password "
                f"({refusal['code'] or refusal['word']}); set others, as http://USER:PASSWORD@HOST:PORT in "
                "--tracking or in $MLFLOW_TRACKING_USERNAME and $MLFLOW_TRACKING_PASSWORD: no result is "
                "lost, `haltsweep sync` writes the missing runs"
            ) from error
        cause = redact(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
        cause = cause if len(cause) <= _MAX_CAUSE else f"{cause[:_MAX_CAUSE]}..."
        remedy = next((do for part, do in _REMEDIES.items() if part in str(error)), None)
        raise TrackingOutage(
            f"MLflow at {redact_url(uri)} failed ({cause}); nothing is lost"
            f"{f': {remedy}, then' if remedy else ','} `haltsweep sync` catches up"
            f"{'' if remedy else ' once it answers again'}"
        ) from error


def open_client(uri: str, artifacts: Path, mode: int = PRIVATE) -> "MlflowClient":
    """Return a client of the store at `uri`; a missing SQLite database is created with `mode`."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    for name in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if (file := sqlite_file(uri)) is not None:
        # Without open connections between requests, a replaced or restored file is detected.
        os.environ.setdefault("MLFLOW_SQLALCHEMYSTORE_POOLCLASS", "NullPool")
        _make_database(file, artifacts, mode)
    from mlflow import MlflowClient

    return MlflowClient(url_for_mlflow(uri))


def _make_database(file: Path, artifacts: Path, mode: int) -> None:
    """Create a database with MLflow's tables unless it exists.

    MLflow creates its tables in many steps and cannot continue after an interruption. So the tables are
    created in another folder, and the finished file is linked to its final path.
    """
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        database = Path(folder) / file.name
        SqlAlchemyStore(url_for_mlflow(sqlite_url(database)), artifacts.resolve().as_uri())  # type: ignore[no-untyped-call]
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        content = database.read_bytes()
    fresh = file.with_name(f".{file.name}-{process_label()}")
    try:
        write_atomically(fresh, content, mode=PRIVATE)
        fresh.chmod(mode)
        # Not renamed, since another sweep may have created the database meanwhile and be writing to it.
        with suppress(FileExistsError):
            file.hardlink_to(fresh)
    finally:
        fresh.unlink(missing_ok=True)


def _to_stored(run: Any) -> StoredRunState:
    # Only the protocol message of a run contains the steps of its metrics.
    metrics, inputs = run.data.to_proto().metrics, run.inputs.dataset_inputs if run.inputs else ()
    return StoredRunState(
        run_id=run.info.run_id,
        artifact_uri=run.info.artifact_uri,
        status=run.info.status,
        end_ms=run.info.end_time,
        tags=dict(run.data.tags),
        params=dict(run.data.params),
        latest={metric.key: (metric.step, metric.value, metric.timestamp) for metric in metrics},
        inputs={
            (each.dataset.name, each.dataset.digest, tag.value)
            for each in inputs
            for tag in each.tags
            if tag.key == CONTEXT
        },
    )
