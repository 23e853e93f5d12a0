"""Store requests from other shells or machines to stop a sweep.

A request holds the fencing token of the lease that it applies to, so that it never stops a later session.
"""

from dataclasses import asdict, dataclass

import sqlalchemy as sa

from orchestrator.ledger.sql.schema import metadata, sweeps

stops = sa.Table(
    "haltsweep_stops",
    metadata,
    sa.Column("sweep_id", sa.Integer, sa.ForeignKey(sweeps.c.id), primary_key=True, autoincrement=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("by", sa.Text, nullable=False),
    sa.Column("at_once", sa.Boolean, nullable=False),
)
"""The newest stop request of each sweep, at most one row per sweep."""


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A request that a session ends."""

    by: str
    """User, host and process that requested the stop."""
    at: float
    """Unix time in seconds, by the clock of the store."""
    at_once: bool
    """Whether running trials are abandoned instead of writing a checkpoint at their next report."""


def write_stop_request(connection: sa.Connection, sweep_id: int, token: int, request: StopRequest) -> None:
    """Replace any earlier request in the caller's write transaction."""
    stops.create(connection, checkfirst=True)  # missing in ledgers of older versions
    connection.execute(sa.delete(stops).where(stops.c.sweep_id == sweep_id))
    connection.execute(sa.insert(stops).values(sweep_id=sweep_id, token=token, **asdict(request)))


def read_stop_request(connection: sa.Connection, sweep_id: int, token: int) -> StopRequest | None:
    """Return the request for the session that holds `token`; None if there is none."""
    is_for_session = (stops.c.sweep_id == sweep_id) & (stops.c.token == token)
    query = sa.select(stops.c.by, stops.c.at, stops.c.at_once).where(is_for_session)
    row = connection.execute(query).one_or_none()
    return None if row is None else StopRequest(*row)
