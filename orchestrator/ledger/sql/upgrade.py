"""Upgrades ledgers of older schema versions to the newest, in one transaction."""

from typing import Any

from sqlalchemy import Connection, bindparam, select, text, update

from orchestrator.errors import StoreError
from orchestrator.files.json_values import from_json_values, parsed
from orchestrator.ledger import chain
from orchestrator.ledger.lease import Holder, Lease
from orchestrator.ledger.sql.schema import SCHEMA_VERSION, UNIQUE_BEFORE, events, lookups, sweeps, versions

ROWS = 5000
"""Number of events chained at once, which limits memory use."""
_COLUMNS = [("haltsweep_events", "digest"), ("haltsweep_sweeps", "head"), ("haltsweep_sweeps", "seal")]


def upgrade(connection: Connection, found: int, now: float) -> None:
    """Upgrade a ledger of version `found` in the caller's write transaction.

    Rows of version 1 have no digests. Version 2 allows only one end per trial, and so no retries. Version 3
    has no index of retries.

    Args:
        connection: Connection in a write transaction.
        found: Version of the ledger.
        now: Unix time in seconds by the clock of the store.

    Raises:
        StoreError: If a process of version 1 may be writing.
    """
    if found < 2:
        _chain_all(connection, now)
    for name in UNIQUE_BEFORE:
        connection.execute(text(f"DROP INDEX IF EXISTS {name}"))
    for index in lookups():
        index.create(connection, checkfirst=True)
    connection.execute(update(versions).values(version=SCHEMA_VERSION))


def _chain_all(connection: Connection, now: float) -> None:
    for table, column in _COLUMNS:
        connection.execute(text(f"ALTER TABLE {table} ADD COLUMN {column} TEXT NOT NULL DEFAULT ''"))
    for row in connection.execute(select(sweeps)).mappings().all():
        if row["holder"] is not None:
            holder = from_json_values(Holder, parsed(row["holder"]))
            _refuse_held(Lease(row["name"], row["token"], holder, row["expires_at"]), now)
        head, last = _chain(connection, row["id"], chain.first(row["uid"]))
        changed = {"head": head, "last_seq": last}
        seal = chain.seal(dict(row) | changed)
        connection.execute(update(sweeps).where(sweeps.c.id == row["id"]).values(**changed, seal=seal))


def _refuse_held(lease: Lease, now: float) -> None:
    if lease.stands(now):
        raise StoreError(
            "a ledger is upgraded while nobody writes to it, and an earlier haltsweep is running "
            f"{lease.sweep!r}; let it finish or stop it, then try again"
        )


def _chain(connection: Connection, sweep_id: int, head: str) -> tuple[str, int]:
    """Chain the events of a sweep and renumber them without gaps; return the newest digest and position."""
    mine = events.c.sweep_id == sweep_id
    columns = [events.c[name] for name in chain.CHAINED]
    set_digest = (
        update(events)
        .where(mine, events.c.seq == bindparam("of"))
        .values(seq=bindparam("at_last"), digest=bindparam("new"))
        .execution_options(synchronize_session=False)
    )
    after = last = 0
    while True:
        query = select(*columns).where(mine, events.c.seq > after).order_by(events.c.seq).limit(ROWS)
        rows = connection.execute(query).all()
        new: list[dict[str, Any]] = []
        for row in rows:
            last += 1
            head = chain.link(head, [last, *row[1:]])
            new.append({"of": row.seq, "at_last": last, "new": head})
        if new:
            connection.execute(set_digest, new)
        if len(rows) < ROWS:
            return head, last
        after = rows[-1].seq
