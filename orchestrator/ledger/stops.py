"""Asking the holder of a sweep to stop, through the ledger: from another shell or another machine.

A request names the fencing token of the lease that it is meant for, so that it never stops a later session.
"""

from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    ForeignKey,
    Integer,
    Table,
    Text,
    delete,
    insert,
    select,
)

from orchestrator.ledger.sql.schema import metadata, sweeps

stops = Table(
    "haltsweep_stops",
    metadata,
    Column("sweep_id", Integer, ForeignKey(sweeps.c.id), primary_key=True, autoincrement=False),
    Column("token", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("by", Text, nullable=False),
    Column("at_once", Boolean, nullable=False),
)
"""At most one row a sweep: the newest request."""


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Somebody wants a session to end."""

    by: str
    """Who asked: user, host and process."""
    at: float
    """Unix time in seconds, by the clock of the store."""
    at_once: bool
    """Whether running trials are given up instead of being saved at their next report."""


def write(connection: Connection, sweep_id: int, token: int, request: StopRequest) -> None:
    """Replace whatever was asked before, inside the caller's write transaction."""
    stops.create(connection, checkfirst=True)  # a ledger of an earlier version lacks it
    connection.execute(delete(stops).where(stops.c.sweep_id == sweep_id))
    connection.execute(
        insert(stops).values(
            sweep_id=sweep_id, token=token, at=request.at, by=request.by, at_once=request.at_once
        )
    )


def read(connection: Connection, sweep_id: int, token: int) -> StopRequest | None:
    """What was asked of the session that holds `token`."""
    query = select(stops.c.by, stops.c.at, stops.c.at_once).where(
        stops.c.sweep_id == sweep_id, stops.c.token == token
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else StopRequest(*row)
