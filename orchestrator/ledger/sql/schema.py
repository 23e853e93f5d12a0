"""Define the tables of the ledger, equal in SQLite and PostgreSQL, and their version."""

from functools import cache
from typing import Any

import sqlalchemy as sa

from orchestrator.errors import StoreError
from orchestrator.ledger.sql.engine import DAMAGE_ADVICE

SCHEMA_VERSION = 4
MIN_READABLE_VERSION = 2
"""Oldest version that can be read. A ledger of an older version is upgraded before the first write."""
CREATION_LOCK = 0x6861_6C74
"""Key of the PostgreSQL advisory lock under which tables are created."""

metadata = sa.MetaData()

versions = sa.Table(
    "haltsweep_schema", metadata, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False)
)

sweeps = sa.Table(
    "haltsweep_sweeps",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("uid", sa.Text, nullable=False),
    sa.Column("last_seq", sa.BigInteger, nullable=False, default=0),
    sa.Column("token", sa.BigInteger, nullable=False, default=0),
    sa.Column("holder", sa.Text),
    sa.Column("expires_at", sa.Double, nullable=False, default=0.0),
    sa.Column("head", sa.Text, nullable=False, server_default=""),
    sa.Column("seal", sa.Text, nullable=False, server_default=""),
)
"""One row per sweep: a unique id, the lease, position and digest of the newest event, and a seal."""

events = sa.Table(
    "haltsweep_events",
    metadata,
    sa.Column(
        "sweep_id", sa.Integer, sa.ForeignKey("haltsweep_sweeps.id"), primary_key=True, autoincrement=False
    ),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("trial_id", sa.Text),
    sa.Column("step", sa.BigInteger),
    sa.Column("seconds", sa.Double),
    sa.Column("outcome", sa.Text),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False, server_default=""),
)
"""One row per event.

`step` and `seconds` are set only for measurements, `outcome` only for final ends. The digest chains an event
to the one before, see `chain.py`.
"""


def is_retry() -> sa.ColumnElement[bool]:
    """Return the condition that an event is a retry.

    The kind is literal text in the query, since databases use a partial index only if the text matches.
    """
    return events.c.kind == sa.literal_column("'retried'")


DROPPED_INDEXES = ("haltsweep_one_measurement_a_step", "haltsweep_one_end_a_trial")
"""Indexes of version 2 that are dropped: a retried trial has several ends and may repeat a step."""


@cache
def trial_indexes() -> tuple[sa.Index, ...]:
    """Return the indexes by which queries find measurements, ends and retries of trials.

    Only the code that creates tables calls it, since partial indexes import the drivers of both databases.
    """
    step, end = events.c.step.is_not(None), events.c.outcome.is_not(None)
    return (
        _trial_index("haltsweep_measurements_of_trials", step, events.c.step),
        _trial_index("haltsweep_ends_of_trials", end),
        _trial_index("haltsweep_retries_of_trials", is_retry(), events.c.seq),
    )


def _trial_index(name: str, where: sa.ColumnElement[bool], *columns: sa.Column[Any]) -> sa.Index:
    trial = (events.c.sweep_id, events.c.trial_id)
    return sa.Index(name, *trial, *columns, sqlite_where=where, postgresql_where=where)


def create_tables(connection: sa.Connection) -> None:
    """Create missing tables in the caller's write transaction."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": CREATION_LOCK})
    trial_indexes()  # adds the indexes to `metadata`
    metadata.create_all(connection)
    if connection.execute(sa.select(versions.c.version)).first() is None:
        connection.execute(versions.insert().values(version=SCHEMA_VERSION))


def read_version(connection: sa.Connection, location: str) -> int:
    """Return the schema version of the ledger at `location`.

    Raises:
        StoreError: If there is no ledger, or an unreadable one.
    """
    if not sa.inspect(connection).has_table(versions.name):
        raise StoreError(
            f"{location} must hold a ledger of haltsweep, but has no table {versions.name!r}; "
            "check the path or URL"
        )
    _refuse_views_and_triggers(connection, location)
    versions_found = connection.scalars(sa.select(versions.c.version)).all()
    if len(versions_found) != 1 or not isinstance(versions_found[0], int) or versions_found[0] < 1:
        raise StoreError(
            f"the ledger at {location} must have one schema version, got {versions_found}; {DAMAGE_ADVICE}"
        )
    if versions_found[0] < MIN_READABLE_VERSION:
        raise StoreError(
            f"the ledger at {location} has schema version={versions_found[0]} of an earlier haltsweep, but "
            f"this version reads {MIN_READABLE_VERSION} to {SCHEMA_VERSION}; read it with the version that "
            "wrote it"
        )
    if versions_found[0] > SCHEMA_VERSION:
        raise StoreError(
            f"the ledger at {location} has schema version={versions_found[0]} of a newer haltsweep, but this "
            f"version reads up to {SCHEMA_VERSION}; upgrade with `pip install --upgrade haltsweep`"
        )
    return int(versions_found[0])


def upgrade(connection: sa.Connection) -> None:
    """Upgrade a ledger of an older version in the caller's write transaction.

    Version 2 allows only one end per trial, and so no retries. Version 3 has no index of retries.
    """
    for name in DROPPED_INDEXES:
        connection.execute(sa.text(f"DROP INDEX IF EXISTS {name}"))
    for index in trial_indexes():
        index.create(connection, checkfirst=True)
    connection.execute(sa.update(versions).values(version=SCHEMA_VERSION))


def _refuse_views_and_triggers(connection: sa.Connection, location: str) -> None:
    """Raise StoreError for a SQLite file with views or triggers, whose queries might never end."""
    if connection.dialect.name != "sqlite":
        return
    statement = "SELECT type, name FROM sqlite_master WHERE tbl_name LIKE 'haltsweep%'"
    for kind, name in connection.execute(sa.text(f"{statement} AND type IN ('view', 'trigger')")):
        raise StoreError(
            f"the ledger at {location} must contain only tables, but {name!r} is a {kind}; {DAMAGE_ADVICE}"
        )
