"""Connections to the ledger's database: URLs, pragmas, transactions, and what its errors mean."""

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
from orchestrator.files import disk
from orchestrator.files.redact import needs_encoding, redact_url
from orchestrator.files.regular_files import found_instead

BUSY_TIMEOUT_MS = 30_000
LOCAL_WITHOUT_DEVICE = frozenset(
    {
        "aufs",
        "bcachefs",
        "ecryptfs",
        "fuse.fuse-overlayfs",
        "overlay",
        "ramfs",
        "rootfs",
        "shiftfs",
        "tmpfs",
        "ubifs",
        "virtiofs",
        "zfs",
    }
)
"""Local file systems without a block device of their own. All others without one may be on a network."""
KINDS = Path("/proc/filesystems")
MOUNTS = Path("/proc/self/mounts")
LEDGER_TABLE = "haltsweep_sweeps"
"""Name of a table that marks a database as a ledger."""
_WRITE = "haltsweep_write"
_LOGGER = "haltsweep"
"""Ends the name of the logger of our connections, so that nobody else's is changed."""
_ANSWERS = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Of libpq: a server that has gone without a word is not waited for for ever. The URL may say otherwise."""

ABANDONED_MS = 20_000
"""A transaction that says nothing for so long has lost its client: PostgreSQL ends it."""
LOCKED_MS = 30_000
"""A lock that PostgreSQL does not get for so long is tried for again."""
DAMAGED = "it is damaged: keep a copy, then restore it from a backup, or try `sqlite3 ledger.db .recover`"
_REMEDIES = (
    ("disk is full", f"{disk.FULL}, then `haltsweep resume`; everything acknowledged so far is stored"),
    ("readonly database", "make the file and its folder writable for this user"),
    ("unable to open database file", "check that the folder exists and is writable for this user"),
    ("not a database", "it is damaged or another program's file: restore it from a backup"),
    ("malformed", DAMAGED),
    ("no such column", DAMAGED),
    ("no such table", DAMAGED),
    ("ON CONFLICT clause", DAMAGED),
    ("Could not decode", DAMAGED),
    ("constraint failed", DAMAGED),
    ("datatype mismatch", DAMAGED),
    ("locked", "another process has been writing to it for long; stop that process and try again"),
    ("disk I/O error", "check the disk (space, quota, `dmesg`), then `haltsweep resume`"),
)
_UNCLEAR = ("disk I/O error", "unable to open database file", "readonly database", "disk is full")
"""What SQLite says for many reasons: the disk is asked for its own."""
_OTHER = (
    "check that the database is reachable and try again (`haltsweep resume` goes on with a sweep); "
    "everything acknowledged so far is stored"
)


def connect(url: str, mounts: Path = MOUNTS, *, write_ahead: bool = False) -> Engine:
    """An engine for `url`, which opens nothing yet.

    `write_ahead`: a SQLite ledger is switched to write-ahead logging, which its file keeps. Raises InputError
    for a URL that cannot hold a ledger, StoreError where something else than a file is.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        file = database_file(parsed)
        _refuse_other(file)
        refuse_network_file_system(file, mounts)
        engine = create_engine(
            parsed, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000}, pool_logging_name=_LOGGER
        )
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
    """Log nothing of what its pool raises or makes up for: a lost server, Ctrl-C while a connection closes.

    SQLAlchemy logs their tracebacks, and they would stand on the screen beside the one sentence of ours.
    """
    pool: Any = engine.pool
    logging.getLogger(pool.logger.name).setLevel(logging.CRITICAL)


def ask(url: str) -> None:
    """Raises InputError for a URL that cannot hold a ledger, StoreError if no database answers there.

    A SQLite file that is not there yet is not created.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        _refuse_other(database_file(parsed), InputError)  # asked for, so nothing is lost
    engine = connect(url)
    file = database_file(engine.url) if engine.url.get_backend_name() == "sqlite" else None
    if file is not None and not file.parent.is_dir():
        raise InputError(
            f"a ledger must be kept in a folder that is there, and {redact_url(str(file.parent))} is not; "
            "make that folder or choose another place with --storage"
        )
    try:
        if file is None or file.exists():
            with transaction(engine, write=False) as connection:
                connection.exec_driver_sql("SELECT 1")
    finally:
        engine.dispose()


def database_file(url: URL) -> Path:
    """The file of a SQLite URL. Raises InputError if there is none."""
    if not url.database or url.database == ":memory:":
        raise InputError(
            f"a ledger must be kept in a file, got {redact_url(str(url))!r}; use sqlite:////absolute/path/ledger.db"
        )
    file = Path(url.database)
    try:
        return file.resolve()
    except RuntimeError as error:  # of Python before 3.13
        raise StoreError(
            f"the ledger must be a file, and {str(file)!r} is a symbolic link to itself; restore the "
            "file from a backup"
        ) from error


def _refuse_other(file: Path, error: type[HaltsweepError] = StoreError) -> None:
    """Raises `error`: SQLite itself would call a pipe or a device a disk that fails."""
    if kind := found_instead(file):
        raise error(
            f"the ledger {file} must be a file, and is {kind}; restore a backup of it, or name another "
            "place with --storage"
        )


def refuse_network_file_system(file: Path, mounts: Path = MOUNTS) -> None:
    """Raises InputError if `file` is, or would be, where SQLite's locks cannot be trusted."""
    kind = _file_system(file, mounts)
    if kind is not None and kind not in LOCAL_WITHOUT_DEVICE and kind not in _with_device():
        raise InputError(
            f"a SQLite ledger must be on a local disk, and {str(file)!r} is on {kind}, where locks are not "
            "reliable; choose a local folder for the runs, or a PostgreSQL with --storage postgresql+psycopg://..."
        )


def require_locks(url: str) -> None:
    """Raises InputError for a ledger in a file where the file system has no file locks.

    SQLite would call the database locked, as if another process held it.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() != "sqlite":
        return
    folder = next(each for each in database_file(parsed).parents if each.is_dir())
    # Whoever writes the ledger reports a folder in which no file can be made.
    with suppress(OSError), tempfile.TemporaryFile(dir=folder) as probe:
        try:
            fcntl.lockf(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"a SQLite ledger must be where files can be locked, and they cannot in {str(folder)!r} "
                f"({error.strerror or error}); choose a local folder for the runs, or a PostgreSQL with "
                "--storage postgresql+psycopg://..."
            ) from error


@contextmanager
def begin(engine: Engine, *, write: bool) -> Iterator[Connection]:
    """One transaction, committed on leaving; a write holds SQLite's one writer lock from its start.

    All that is read in one that does not write is of one moment. Raises StoreError for text that is damaged.
    """
    options: dict[str, Any] = {_WRITE: write}
    if engine.dialect.name == "postgresql":
        options["isolation_level"] = "READ COMMITTED" if write else "REPEATABLE READ"
    try:
        with engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection
    except UnicodeDecodeError as error:  # SQLite quotes what is damaged, and Python cannot read that
        place = engine.url.render_as_string(hide_password=True)
        raise StoreError(f"the ledger at {place} holds text that is none: {error}; {DAMAGED}") from error


@contextmanager
def transaction(engine: Engine, *, write: bool) -> Iterator[Connection]:
    """As `begin`, but raises StoreError with what to do when the database fails."""
    try:
        with begin(engine, write=write) as connection:
            yield connection
    except DBAPIError as error:
        raise explain(error, engine.url) from error


def store_time(connection: Connection) -> float:
    """Unix time in seconds by the clock that leases go by: the server's, or of a file this machine's."""
    if connection.dialect.name == "postgresql":
        return float(connection.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0)
    return time.time()


def explain(error: DBAPIError, url: URL, since: float | None = None) -> StoreError:
    """The same fault in words, with what to do; `since`: Unix time in seconds of the first of its kind."""
    cause = " ".join(str(error.orig).split())
    away = f" (since {time.strftime('%H:%M:%S', time.localtime(since))})" if since is not None else ""
    if any(sign in cause for sign in _UNCLEAR) and (refusal := _refusal(url)) is not None:
        cause, remedy = f"{cause} ({refusal})", f"{disk.remedy(refusal)}, then `haltsweep resume`"
    else:
        remedy = next((remedy for sign, remedy in _REMEDIES if sign in cause), _OTHER)
    return StoreError(f"the ledger at {redact_url(str(url))} failed{away}: {cause}; {remedy}")


def _refusal(url: URL) -> OSError | None:
    """What the disk under a SQLite file says itself."""
    if url.get_backend_name() != "sqlite":
        return None
    folder = database_file(url).parent
    return disk.refusal(folder) if folder.is_dir() else None


def _parse(url: str) -> URL:
    if needs_encoding(url):
        raise InputError(
            "user and password in --storage must be percent-encoded (@ as %40, / as %2F, a space as %20), "
            f"got {redact_url(url)!r}; encode them"
        )
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
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
    # What a lost client began holds the lock on its sweep until the server finds out, hours later by default.
    connection.execute(f"SET idle_in_transaction_session_timeout = {ABANDONED_MS}")
    connection.execute(f"SET lock_timeout = {LOCKED_MS}")
    connection.commit()


def _set_pragmas(connection: Any, _: object) -> None:
    # Transactions are begun by `_begin_sqlite`; the driver's own would begin them too late.
    connection.isolation_level = None
    for pragma in (f"busy_timeout={BUSY_TIMEOUT_MS}", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _set_write_ahead(connection: Any, _: object) -> None:
    # The journal mode is kept in the file, so that of another program's database must not change.
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables or LEDGER_TABLE in tables:
        connection.execute("PRAGMA journal_mode=WAL")


def _begin_sqlite(connection: Connection) -> None:
    # Taking the writer's lock at once: a transaction that reads first and writes later can fail as busy.
    write = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _with_device() -> set[str]:
    """File systems that this kernel mounts from block devices."""
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
    """Return the names of the tables in any database, e.g. of MLflow. Raises SQLAlchemyError."""
    engine = create_engine(url)
    try:
        return frozenset(inspect(engine).get_table_names())
    finally:
        engine.dispose()
