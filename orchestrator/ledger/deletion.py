"""Delete a sweep from a database that also holds other sweeps."""

from sqlalchemy import Connection, delete, func, inspect, select

from orchestrator.ledger import snapshots
from orchestrator.ledger.lease import Holder, LeaseHeldError
from orchestrator.ledger.sql.engine import missing_file, open_engine, store_time, transaction
from orchestrator.ledger.sql.schema import events, sweeps
from orchestrator.ledger.stop_requests import stops
from orchestrator.ledger.store import read_lease


def delete_sweep(url: str, sweep: str, uid: str) -> int:
    """Delete the sweep `sweep` with this `uid` in one transaction, and return its number of events.

    Nothing is deleted if the sweep is missing, or if its name now belongs to another sweep.

    Raises:
        LeaseHeldError: If another process holds the sweep.
        StoreError: If the database fails.
    """
    with open_engine(url) as engine:
        if missing_file(engine) is not None:
            return 0
        with transaction(engine, write=True) as connection:
            return _delete_rows(connection, sweep, uid)


def _delete_rows(connection: Connection, sweep: str, uid: str) -> int:
    if not inspect(connection).has_table(sweeps.name):
        return 0
    query = select(sweeps).where(sweeps.c.name == sweep, sweeps.c.uid == uid).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        return 0
    lease, now = read_lease(dict(row._mapping)), store_time(connection)
    is_held = lease is not None and lease.is_holder_alive(now)
    if lease is not None and is_held and not lease.holder.is_same_process(Holder.current()):
        raise LeaseHeldError(lease, now)
    snapshots.delete_snapshot(connection, row.id)
    if inspect(connection).has_table(stops.name):
        connection.execute(delete(stops).where(stops.c.sweep_id == row.id))
    deleted = connection.execute(delete(events).where(events.c.sweep_id == row.id)).rowcount
    connection.execute(delete(sweeps).where(sweeps.c.id == row.id))
    return deleted


def num_events(url: str, sweep: str) -> int:
    """Return the number of events of the sweep in the ledger at `url`.

    Raises:
        StoreError: If the database fails.
    """
    query = select(func.count()).select_from(events).join(sweeps, sweeps.c.id == events.c.sweep_id)
    with open_engine(url) as engine, transaction(engine, write=False) as connection:
        return int(connection.scalar(query.where(sweeps.c.name == sweep)) or 0)
