"""Connect to the ledger's database: URLs, pragmas, transactions and explanations of errors."""

import fcntl
import logging
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError

from orchestrator.errors import HaltsweepError, InputError, StoreError
from orchestrator.files import disk_errors
from orchestrator.files.redact import needs_encoding, redact_url
from orchestrator.files.regular_files import describe_non_file

BUSY_TIMEOUT_MS = 30_000
LOCAL_FILE_SYSTEMS = frozenset(
    {"aufs", "bcachefs", "ecryptfs", "fuse.fuse-overlayfs", "overlay", "ramfs", "rootfs", "shiftfs"}
    | {"tmpfs", "ubifs", "virtiofs", "zfs"}
)
"""Local file systems without a block device; any other without one may be on a network."""
FILE_SYSTEMS_FILE = Path("/proc/filesystems")
MOUNTS = Path("/proc/self/mounts")
LEDGER_TABLE = "haltsweep_sweeps"
"""Name of a table that identifies a database as a ledger."""
_WRITE_OPTION = "haltsweep_write"
_LOGGER_SUFFIX = "haltsweep"
"""Suffix of the name of the connection pool's logger, so that other loggers are not changed."""
_KEEPALIVE_OPTIONS = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Options of libpq that detect a server that no longer responds; the URL may override them."""

IDLE_TIMEOUT_MS = 20_000
"""Milliseconds after which PostgreSQL ends an idle transaction, since its client is lost."""
LOCK_TIMEOUT_MS = 30_000
"""Milliseconds that PostgreSQL waits for a lock before the transaction fails and is retried."""
DAMAGE_ADVICE = (
    "it is damaged: keep a copy, then restore it from a backup, or try `sqlite3 ledger.db .recover`"
)
_REMEDY_BY_ERROR = (
    (
        "disk is full",
        f"{disk_errors.FULL}, then `haltsweep resume`; everything acknowledged so far is stored",
    ),
    ("readonly database", "make the file and its folder writable for this user"),
    ("unable to open database file", "check that the folder exists and is writable for this user"),
    ("not a database", "it is damaged or another program's file: restore it from a backup"),
    *(
        (sign, DAMAGE_ADVICE)
        for sign in ("malformed", "no such column", "no such table", "ON CONFLICT clause")
    ),
    *((sign, DAMAGE_ADVICE) for sign in ("Could not decode", "constraint failed", "datatype mismatch")),
    ("locked", "another process holds a long write lock; stop that process and try again"),
    ("disk I/O error", "check the disk (space, quota, `dmesg`), then `haltsweep resume`"),
)
_AMBIGUOUS_ERRORS = ("disk I/O error", "unable to open database file", "readonly database", "disk is full")
"""Messages of SQLite with several possible causes; for these the disk itself is checked."""
_DEFAULT_REMEDY = (
    "check that the database is reachable and try again (`haltsweep resume` continues a sweep); "
    "everything acknowledged so far is stored"
)


def connect(url: str, mounts: Path = MOUNTS, *, write_ahead: bool = False) -> Engine:
    """Return an engine for `url`; no connection is opened yet.

    Args:
        url: URL of the database.
        mounts: File that lists the mounted file systems.
        write_ahead: Whether a SQLite ledger is switched to write-ahead logging, which its file stores.

    Raises:
        InputError: For a URL that cannot hold a ledger.
        StoreError: If the path exists but is not a regular file.
    """
    parsed = _parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        file = database_file(parsed)
        _refuse_non_file(file)
        refuse_network_file_system(file, mounts)
        timeout = {"timeout": BUSY_TIMEOUT_MS / 1000}
        engine = create_engine(parsed, connect_args=timeout, pool_logging_name=_LOGGER_SUFFIX)
        event.listen(engine, "connect", _set_pragmas)
        if write_ahead:
            event.listen(engine, "connect", _set_write_ahead)
        event.listen(engine, "begin", _begin_sqlite)
        _silence_pool_log(engine)
        return engine
    connect_options = {name: value for name, value in _KEEPALIVE_OPTIONS.items() if name not in parsed.query}
    try:
        engine = create_engine(
            parsed, pool_pre_ping=True, connect_args=connect_options, pool_logging_name=_LOGGER_SUFFIX
        )
    except ModuleNotFoundError as error:
        raise InputError(
            f"a ledger in PostgreSQL needs the driver psycopg, which is missing ({error}); "
            "install it with: pip install 'haltsweep[postgres]'"
        ) from error
    event.listen(engine, "connect", _set_limits)
    _silence_pool_log(engine)
    return engine


def _silence_pool_log(engine: Engine) -> None:
    """Silence the log messages of the connection pool, for example after a lost server or Ctrl-C.

    SQLAlchemy would log tracebacks in addition to the error message of haltsweep.
    """
    pool: Any = engine.pool
    logging.getLogger(pool.logger.name).setLevel(logging.CRITICAL)


def require_reachable(url: str) -> None:
    """Verify that a database answers at `url`; a missing SQLite file is not created.

    Raises:
        InputError: For a URL that cannot hold a ledger.
        StoreError: If no database answers.
    """
    parsed = _parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        _refuse_non_file(database_file(parsed), InputError)  # the user can name another place
    with open_engine(url) as engine:
        file = missing_file(engine)
        if file is not None and not file.parent.is_dir():
            raise InputError(
                f"the folder of the ledger, {redact_url(str(file.parent))}, does not exist; create it or "
                "choose another location with --storage"
            )
        if file is None:
            with transaction(engine, write=False) as connection:
                connection.exec_driver_sql("SELECT 1")


@contextmanager
def open_engine(url: str) -> Iterator[Engine]:
    """Yield an engine for `url`, and close its connections at the end of the context."""
    engine = connect(url)
    try:
        yield engine
    finally:
        engine.dispose()


def missing_file(engine: Engine) -> Path | None:
    """Return the SQLite file of the ledger if it does not exist; None for any other database."""
    file = database_file(engine.url) if engine.dialect.name == "sqlite" else None
    return file if file is not None and not file.exists() else None


def database_file(url: URL) -> Path:
    """Return the file of a SQLite URL.

    Raises:
        InputError: If the URL has no file.
        StoreError: If the file is a symbolic link to itself.
    """
    if not url.database or url.database == ":memory:":
        raise InputError(
            f"a ledger must be in a file, got {redact_url(str(url))!r}; use sqlite:////absolute/path/ledger.db"
        )
    file = Path(url.database)
    try:
        return file.resolve()
    except RuntimeError as error:  # raised by Python before 3.13
        raise StoreError(
            f"the ledger must be a file, and {str(file)!r} is a symbolic link to itself; restore the "
            "file from a backup"
        ) from error


def _refuse_non_file(file: Path, error: type[HaltsweepError] = StoreError) -> None:
    """Raise `error` if `file` is a pipe, a device or similar: SQLite would report a disk error instead."""
    if kind := describe_non_file(file):
        raise error(
            f"the ledger {file} must be a file, and is {kind}; restore a backup of it, or name another "
            "place with --storage"
        )


def refuse_network_file_system(file: Path, mounts: Path = MOUNTS) -> None:
    """Raise InputError if `file` is on a file system on which SQLite's locks are unreliable."""
    kind = _file_system(file, mounts)
    if kind is not None and kind not in LOCAL_FILE_SYSTEMS and kind not in _device_file_systems():
        raise InputError(
            f"a SQLite ledger must be on a local disk, and {str(file)!r} is on {kind}, where locks are not "
            "reliable; choose a local folder for the runs, or a PostgreSQL with --storage postgresql+psycopg://..."
        )


def require_locks(url: str) -> None:
    """Raise InputError for a ledger file on a file system without file locks.

    SQLite would report the database as locked, as if another process held it.
    """
    parsed = _parse_url(url)
    if parsed.get_backend_name() != "sqlite":
        return
    folder = next(path for path in database_file(parsed).parents if path.is_dir())
    # A folder in which no file can be created is reported when the ledger is written.
    with suppress(OSError), tempfile.TemporaryFile(dir=folder) as probe:
        try:
            fcntl.lockf(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"a SQLite ledger needs a folder in which files can be locked, not {str(folder)!r} "
                f"({error.strerror or error}); choose a local folder for the runs, or a PostgreSQL with "
                "--storage postgresql+psycopg://..."
            ) from error


@contextmanager
def begin_transaction(engine: Engine, *, write: bool) -> Iterator[Connection]:
    """Run one transaction and commit it at the end; a write holds SQLite's writer lock from the start.

    A transaction that does not write reads a consistent state.

    Raises:
        StoreError: If text in the database is damaged.
    """
    options: dict[str, Any] = {_WRITE_OPTION: write}
    if engine.dialect.name == "postgresql":
        options["isolation_level"] = "READ COMMITTED" if write else "REPEATABLE READ"
    try:
        with engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection
    except UnicodeDecodeError as error:  # Python cannot decode the damaged text
        place = engine.url.render_as_string(hide_password=True)
        raise StoreError(f"the ledger at {place} contains invalid text: {error}; {DAMAGE_ADVICE}") from error


@contextmanager
def transaction(engine: Engine, *, write: bool) -> Iterator[Connection]:
    """Run a transaction as `begin_transaction` does, but raise StoreError if the database fails."""
    try:
        with begin_transaction(engine, write=write) as connection:
            yield connection
    except DBAPIError as error:
        raise explain_error(error, engine.url) from error


def store_time(connection: Connection) -> float:
    """Return the Unix time in seconds by the clock of leases: the server's, or this machine's for a file."""
    if connection.dialect.name == "postgresql":
        return float(connection.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0)
    return time.time()


def explain_error(error: DBAPIError, url: URL, since: float | None = None) -> StoreError:
    """Return the error with a message that states the cause and what to do.

    Args:
        error: Error of the database driver.
        url: URL of the database.
        since: Unix time in seconds of the first failure of the outage.
    """
    cause = " ".join(str(error.orig).split())
    outage_text = f" (since {time.strftime('%H:%M:%S', time.localtime(since))})" if since is not None else ""
    if any(sign in cause for sign in _AMBIGUOUS_ERRORS) and (refusal := _disk_error(url)) is not None:
        cause, remedy = f"{cause} ({refusal})", f"{disk_errors.disk_remedy(refusal)}, then `haltsweep resume`"
    else:
        remedy = next((remedy for sign, remedy in _REMEDY_BY_ERROR if sign in cause), _DEFAULT_REMEDY)
    return StoreError(f"the ledger at {redact_url(str(url))} failed{outage_text}: {cause}; {remedy}")


def _disk_error(url: URL) -> OSError | None:
    """Return the error that the file system under a SQLite file reports; None if it reports none."""
    if url.get_backend_name() != "sqlite":
        return None
    folder = database_file(url).parent
    return disk_errors.probe_folder(folder) if folder.is_dir() else None


def _parse_url(url: str) -> URL:
    if needs_encoding(url):
        raise InputError(
            "user and password in --storage must be percent-encoded (@ as %40, / as %2F, a space as %20), "
            f"got {redact_url(url)!r}; encode them"
        )
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: the port is not a number
        parsed = None
    name = parsed.get_backend_name() if parsed is not None else ""
    if parsed is not None and name in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed is None or name != "sqlite":
        raise InputError(
            "a ledger must be at sqlite:///FILE or postgresql+psycopg://USER@HOST/DATABASE, got "
            f"{redact_url(url)!r}"
        )
    if parsed.host or parsed.username:
        raise InputError(
            f"a ledger in a file must have neither user nor host, got {redact_url(url)!r}; use "
            "sqlite:////absolute/path/ledger.db"
        )
    if parsed.query:
        raise InputError(
            f"a ledger in a file takes no parameters, got {redact_url(url)!r}; omit the ? and the text "
            "after it"
        )
    return parsed.set(drivername="sqlite")


def _set_limits(connection: Any, _: object) -> None:
    # By default, the server keeps the locks of a lost client's transaction for hours.
    connection.execute(f"SET idle_in_transaction_session_timeout = {IDLE_TIMEOUT_MS}")
    connection.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
    connection.commit()


def _set_pragmas(connection: Any, _: object) -> None:
    # `_begin_sqlite` begins transactions explicitly; the driver would begin them too late.
    connection.isolation_level = None
    for pragma in (f"busy_timeout={BUSY_TIMEOUT_MS}", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _set_write_ahead(connection: Any, _: object) -> None:
    # The journal mode is stored in the file, and must not change in the database of another program.
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables or LEDGER_TABLE in tables:
        connection.execute("PRAGMA journal_mode=WAL")


def _begin_sqlite(connection: Connection) -> None:
    # Acquire the writer lock at once: a transaction that reads first and writes later can fail as busy.
    write = connection.get_execution_options().get(_WRITE_OPTION, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _device_file_systems() -> set[str]:
    """Return the file systems that this kernel mounts from block devices."""
    lines = FILE_SYSTEMS_FILE.read_text().splitlines()
    return {line.strip() for line in lines if not line.startswith("nodev")}


def _file_system(file: Path, mounts: Path) -> str | None:
    if not mounts.exists() or not FILE_SYSTEMS_FILE.exists():
        return None
    best_depth, file_system = -1, None
    for line in mounts.read_text().splitlines():
        _, point, name = line.split()[:3]
        folder = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point))
        if file.is_relative_to(folder) and len(folder.parts) >= best_depth:
            best_depth, file_system = len(folder.parts), name
    return file_system


def table_names(url: str) -> frozenset[str]:
    """Return the names of the tables in any database, for example of MLflow.

    Raises:
        SQLAlchemyError: If the database cannot be read.
    """
    engine = create_engine(url)
    try:
        return frozenset(inspect(engine).get_table_names())
    finally:
        engine.dispose()
