"""Connects to the ledger's database: URLs, pragmas, transactions and explanations of errors."""

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
LOCAL_WITHOUT_DEVICE = frozenset(
    {"aufs", "bcachefs", "ecryptfs", "fuse.fuse-overlayfs", "overlay", "ramfs", "rootfs", "shiftfs"}
    | {"tmpfs", "ubifs", "virtiofs", "zfs"}
)
"""Local file systems without a block device; any other without one may be on a network."""
KINDS = Path("/proc/filesystems")
MOUNTS = Path("/proc/self/mounts")
LEDGER_TABLE = "haltsweep_sweeps"
"""Name of a table that identifies a database as a ledger."""
_WRITE = "haltsweep_write"
_LOGGER = "haltsweep"
"""Suffix of the name of the connection pool's logger, so that other loggers are not changed."""
_ANSWERS = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Options of libpq that detect a server that no longer responds; the URL may override them."""

ABANDONED_MS = 20_000
"""Milliseconds after which PostgreSQL ends an idle transaction, since its client is lost."""
LOCKED_MS = 30_000
"""Milliseconds that PostgreSQL waits for a lock before the transaction fails and is retried."""
DAMAGED = "it is damaged: keep a copy, then restore it from a backup, or try `sqlite3 ledger.db .recover`"
_REMEDIES = (
    (
        "disk is full",
        f"{disk_errors.FULL}, then `haltsweep resume`; everything acknowledged so far is stored",
    ),
    ("readonly database", "make the file and its folder writable for this user"),
    ("unable to open database file", "check that the folder exists and is writable for this user"),
    ("not a database", "it is damaged or another program's file: restore it from a backup"),
    *((sign, DAMAGED) for sign in ("malformed", "no such column", "no such table", "ON CONFLICT clause")),
    *((sign, DAMAGED) for sign in ("Could not decode", "constraint failed", "datatype mismatch")),
    ("locked", "another process has been writing to it for long; stop that process and try again"),
    ("disk I/O error", "check the disk (space, quota, `dmesg`), then `haltsweep resume`"),
)
_UNCLEAR = ("disk I/O error", "unable to open database file", "readonly database", "disk is full")
"""Messages of SQLite with several possible causes; for these the disk itself is checked."""
_OTHER = (
    "check that the database is reachable and try again (`haltsweep resume` goes on with a sweep); "
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
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        file = database_file(parsed)
        _refuse_non_file(file)
        refuse_network_file_system(file, mounts)
        timeout = {"timeout": BUSY_TIMEOUT_MS / 1000}
        engine = create_engine(parsed, connect_args=timeout, pool_logging_name=_LOGGER)
        event.listen(engine, "connect", _set_pragmas)
        if write_ahead:
            event.listen(engine, "connect", _set_write_ahead)
        event.listen(engine, "begin", _begin_sqlite)
        _quieten(engine)
        return engine
    answers = {name: value for name, value in _ANSWERS.items() if name not in parsed.query}
    try:
        engine = create_engine(parsed, pool_pre_ping=True, connect_args=answers, pool_logging_name=_LOGGER)
    except ModuleNotFoundError as error:
        raise InputError(
            f"a ledger in PostgreSQL needs the driver psycopg, which is missing ({error}); "
            "install it with: pip install 'haltsweep[postgres]'"
        ) from error
    event.listen(engine, "connect", _set_limits)
    _quieten(engine)
    return engine


def _quieten(engine: Engine) -> None:
    """Silence the log messages of the connection pool, for example after a lost server or Ctrl-C.

    SQLAlchemy would log tracebacks in addition to the error message of haltsweep.
    """
    pool: Any = engine.pool
    logging.getLogger(pool.logger.name).setLevel(logging.CRITICAL)


def require_answer(url: str) -> None:
    """Verify that a database answers at `url`; a missing SQLite file is not created.

    Raises:
        InputError: For a URL that cannot hold a ledger.
        StoreError: If no database answers.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        _refuse_non_file(database_file(parsed), InputError)  # the user can name another place
    with opened(url) as engine:
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
def opened(url: str) -> Iterator[Engine]:
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
            f"a ledger must be kept in a file, got {redact_url(str(url))!r}; use sqlite:////absolute/path/ledger.db"
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
    if kind is not None and kind not in LOCAL_WITHOUT_DEVICE and kind not in _device_file_systems():
        raise InputError(
            f"a SQLite ledger must be on a local disk, and {str(file)!r} is on {kind}, where locks are not "
            "reliable; choose a local folder for the runs, or a PostgreSQL with --storage postgresql+psycopg://..."
        )


def require_locks(url: str) -> None:
    """Raise InputError for a ledger file on a file system without file locks.

    SQLite would report the database as locked, as if another process held it.
    """
    parsed = _parse(url)
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
def begin(engine: Engine, *, write: bool) -> Iterator[Connection]:
    """Run one transaction and commit it at the end; a write holds SQLite's writer lock from the start.

    A transaction that does not write reads a consistent state.

    Raises:
        StoreError: If text in the database is damaged.
    """
    options: dict[str, Any] = {_WRITE: write}
    if engine.dialect.name == "postgresql":
        options["isolation_level"] = "READ COMMITTED" if write else "REPEATABLE READ"
    try:
        with engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection
    except UnicodeDecodeError as error:  # SQLite quotes the damaged text, which Python cannot decode
        place = engine.url.render_as_string(hide_password=True)
        raise StoreError(f"the ledger at {place} contains invalid text: {error}; {DAMAGED}") from error


@contextmanager
def transaction(engine: Engine, *, write: bool) -> Iterator[Connection]:
    """Run a transaction as `begin` does, but raise StoreError with advice when the database fails."""
    try:
        with begin(engine, write=write) as connection:
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
    if any(sign in cause for sign in _UNCLEAR) and (refusal := _refusal(url)) is not None:
        cause, remedy = f"{cause} ({refusal})", f"{disk_errors.disk_remedy(refusal)}, then `haltsweep resume`"
    else:
        remedy = next((remedy for sign, remedy in _REMEDIES if sign in cause), _OTHER)
    return StoreError(f"the ledger at {redact_url(str(url))} failed{outage_text}: {cause}; {remedy}")


def _refusal(url: URL) -> OSError | None:
    """Return the error that the file system under a SQLite file reports; None if it reports none."""
    if url.get_backend_name() != "sqlite":
        return None
    folder = database_file(url).parent
    return disk_errors.probe_folder(folder) if folder.is_dir() else None


def _parse(url: str) -> URL:
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
            f"a ledger in a file takes no parameters, got {redact_url(url)!r}; leave out what follows the ?"
        )
    return parsed.set(drivername="sqlite")


def _set_limits(connection: Any, _: object) -> None:
    # By default, the server keeps the locks of a lost client's transaction for hours.
    connection.execute(f"SET idle_in_transaction_session_timeout = {ABANDONED_MS}")
    connection.execute(f"SET lock_timeout = {LOCKED_MS}")
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
    write = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _device_file_systems() -> set[str]:
    """Return the file systems that this kernel mounts from block devices."""
    lines = KINDS.read_text().splitlines()
    return {line.strip() for line in lines if not line.startswith("nodev")}


def _file_system(file: Path, mounts: Path) -> str | None:
    if not mounts.exists() or not KINDS.exists():
        return None
    best, kind = -1, None
    for line in mounts.read_text().splitlines():
        _, point, name = line.split()[:3]
        folder = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point))
        if file.is_relative_to(folder) and len(folder.parts) >= best:
            best, kind = len(folder.parts), name
    return kind


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
