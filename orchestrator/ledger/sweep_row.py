"""Find or create the row of a sweep in a ledger, and upgrade ledgers of older versions."""

import uuid

from sqlalchemy import Connection, func, insert, select, update

from orchestrator.errors import StoreError
from orchestrator.ledger import chain
from orchestrator.ledger.sql import schema
from orchestrator.ledger.sql.database import Database
from orchestrator.ledger.sql.engine import DAMAGE_ADVICE, missing_file
from orchestrator.ledger.sql.schema import events, sweeps


def find_or_create(database: Database, sweep: str) -> int:
    """Return the id of the sweep; create its row and the tables if they are missing."""
    location = _location(database)

    def insert_if_missing(connection: Connection) -> int:
        schema.create_tables(connection)
        _upgrade_if_older(connection, location)
        sweep_id = _find_id(connection, sweep, location)
        return sweep_id if sweep_id is not None else _insert_row(connection, sweep)

    return database.run(insert_if_missing, write=True)


def find_sweep_id(database: Database, sweep: str) -> int:
    """Return the id of the sweep.

    Raises:
        StoreError: If the ledger or the sweep is missing.
    """
    location = _location(database)
    if (file := missing_file(database.engine)) is not None:
        raise StoreError(f"no ledger at {str(file)!r}; check the path, or launch the sweep first")

    def find_id(connection: Connection) -> int:
        schema.read_version(connection, location)
        sweep_id = _find_id(connection, sweep, location)
        if sweep_id is None:
            names = ", ".join(sorted(map(str, connection.scalars(select(sweeps.c.name)))))
            raise StoreError(f"no sweep {sweep!r} in the ledger at {location}; it holds: {names or 'none'}")
        return sweep_id

    return database.run(find_id, write=False)


def upgrade_ledger(database: Database) -> None:
    """Upgrade a ledger that an older version of haltsweep wrote."""
    location = _location(database)
    version = database.run(lambda connection: schema.read_version(connection, location), write=False)
    if version < schema.SCHEMA_VERSION:
        database.run(lambda connection: _upgrade_if_older(connection, location), write=True)


def _location(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=True)


def _upgrade_if_older(connection: Connection, location: str) -> None:
    if schema.read_version(connection, location) < schema.SCHEMA_VERSION:
        schema.upgrade(connection)


def _insert_row(connection: Connection, sweep: str) -> int:
    values = {"name": sweep, "uid": uuid.uuid4().hex, "last_seq": 0, "token": 0, "expires_at": 0.0}
    values["head"] = chain.first_digest(str(values["uid"]))
    sweep_id = connection.scalar(insert(sweeps).values(**values).returning(sweeps.c.id))
    assert sweep_id is not None, "the row just inserted has an id"
    seal = chain.seal_digest(values | {"id": sweep_id, "holder": None})
    connection.execute(update(sweeps).where(sweeps.c.id == sweep_id).values(seal=seal))
    return int(sweep_id)


def _find_id(connection: Connection, sweep: str, location: str) -> int | None:
    """Return the id of the sweep; None if the ledger has none of that name.

    Raises:
        StoreError: If the row of a sweep is lost or changed, so that a new row could replace it.
    """
    sweep_id = connection.scalar(select(sweeps.c.id).where(sweeps.c.name == sweep))
    if isinstance(sweep_id, int):
        return sweep_id
    for row in connection.execute(select(sweeps)).mappings():
        if not chain.is_sealed(dict(row)) or row["name"] == sweep:
            raise StoreError(
                f"the ledger at {location} must hold its sweeps as they were written, and the row of "
                f"{row['name']!r} was changed; {DAMAGE_ADVICE}"
            )
    if connection.dialect.name != "sqlite":  # PostgreSQL enforces foreign keys, and there may be many events
        return None
    orphan = connection.scalar(select(func.count()).where(events.c.sweep_id.not_in(select(sweeps.c.id))))
    if orphan:
        raise StoreError(
            f"the ledger at {location} must name the sweep of every event, and {orphan} events belong to a "
            f"sweep whose row is missing; {DAMAGE_ADVICE}"
        )
    return None
