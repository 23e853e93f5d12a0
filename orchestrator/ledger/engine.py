"""Connections to the ledger's database: URLs, pragmas, transactions, and what its errors mean."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from orchestrator.errors import InputError, StoreError

BUSY_TIMEOUT_MS = 30_000
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "panfs",
        "smb3",
        "smbfs",
    }
)
MOUNTS = Path("/proc/self/mounts")
_WRITE = "haltsweep_write"

_REMEDIES = (
    ("disk is full", "free some space, then `haltsweep resume`; everything acknowledged so far is stored"),
    ("readonly database", "make the file and its folder writable for this user"),
    ("unable to open database file", "check that the folder exists and is writable for this user"),
    ("not a database", "it is damaged or another program's file: restore it from a backup"),
    ("malformed", "it is damaged: keep a copy, then try `sqlite3 ledger.db .recover` or a backup"),
    ("locked", "another process has been writing to it for long; stop that process and try again"),
    ("disk I/O error", "check the disk (space, quota, `dmesg`), then `haltsweep resume`"),
)
_OTHER = "check that the database is reachable and try again; everything acknowledged so far is stored"


def connect(url: str, mounts: Path = MOUNTS) -> Engine:
    """An engine for `url`. Raises InputError for a URL that cannot hold a ledger; opens nothing yet."""
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        refuse_network_file_system(database_file(parsed), mounts)
        engine = create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000})
        event.listen(engine, "connect", _set_pragmas)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        return create_engine(parsed, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise InputError(
            f"a ledger in PostgreSQL needs the driver psycopg, which is missing ({error}); "
            "install it with: pip install 'haltsweep[postgres]'"
        ) from error


def ask(url: str) -> None:
    """Raises InputError for a URL that cannot hold a ledger, StoreError if no database answers there.

    A SQLite file that is not there yet is not created.
    """
    engine = connect(url)
    file = database_file(engine.url) if engine.url.get_backend_name() == "sqlite" else None
    if file is not None and not file.parent.is_dir():
        raise InputError(
            f"a ledger must be kept in a folder that is there, and {file.parent} is not; "
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
            f"a ledger must be kept in a file, got {str(url)!r}; use sqlite:////absolute/path/ledger.db"
        )
    return Path(url.database).resolve()


def refuse_network_file_system(file: Path, mounts: Path = MOUNTS) -> None:
    """Raises InputError if `file` is, or would be, where SQLite's locks cannot be trusted."""
    kind = _file_system(file, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise InputError(
            f"a SQLite ledger must be on a local disk, and {str(file)!r} is on {kind}, where locks are not "
            "reliable; choose a local folder for the runs, or a PostgreSQL with --storage postgresql+psycopg://..."
        )


@contextmanager
def transaction(engine: Engine, *, write: bool) -> Iterator[Connection]:
    """One transaction, committed on leaving; a write holds SQLite's one writer lock from its start.

    Raises StoreError with what to do when the database fails.
    """
    try:
        with engine.connect().execution_options(**{_WRITE: write}) as connection, connection.begin():
            yield connection
    except DBAPIError as error:
        raise explain(error, engine.url) from error


def relax(engine: Engine) -> None:
    """Spare a SQLite database that can be rebuilt at any time the wait for the disk at each commit."""
    event.listen(engine, "connect", _set_normal)
    engine.dispose()


def explain(error: DBAPIError, url: URL) -> StoreError:
    """The same fault in words, with what to do."""
    cause = str(error.orig)
    remedy = next((remedy for sign, remedy in _REMEDIES if sign in cause), _OTHER)
    return StoreError(
        f"the ledger at {url.render_as_string(hide_password=True)} failed: {cause.strip()}; {remedy}"
    )


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        parsed = None
    name = parsed.get_backend_name() if parsed is not None else ""
    if parsed is not None and name in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed is None or name != "sqlite":
        raise InputError(
            f"a ledger must be at sqlite:///FILE or postgresql+psycopg://USER@HOST/DATABASE, got {url!r}"
        )
    return parsed


def _set_pragmas(connection: Any, _: object) -> None:
    # Transactions are begun by `_begin_sqlite`; the driver's own would begin them too late.
    connection.isolation_level = None
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _set_normal(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous=NORMAL")


def _begin_sqlite(connection: Connection) -> None:
    # Taking the writer's lock at once: a transaction that reads first and writes later can fail as busy.
    write = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _file_system(file: Path, mounts: Path) -> str | None:
    if not mounts.exists():
        return None
    best, kind = -1, None
    for line in mounts.read_text().splitlines():
        _, point, name = line.split()[:3]
        folder = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point))
        if file.is_relative_to(folder) and len(folder.parts) >= best:
            best, kind = len(folder.parts), name
    return kind
