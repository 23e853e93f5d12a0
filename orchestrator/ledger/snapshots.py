"""Stores snapshots: the state computed from all events of a sweep, so that a session need not read them.

A snapshot is a cache. Its row holds the position and the digest of its last event, and the digest of its plan
and format. A snapshot that does not fit the ledger, or is damaged, is ignored.
"""

import hashlib
from typing import Any

import sqlalchemy as sa

from orchestrator.ledger.chain import SIZE
from orchestrator.ledger.ledger_snapshot import LedgerSnapshot
from orchestrator.ledger.sql.schema import events, metadata, sweeps

snapshots = sa.Table(
    "haltsweep_snapshots",
    metadata,
    sa.Column("sweep_id", sa.Integer, sa.ForeignKey(sweeps.c.id), primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("head", sa.Text, nullable=False),
    sa.Column("made_for", sa.Text, nullable=False),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
)
"""The newest snapshot of each sweep, at most one row per sweep."""


def write(connection: sa.Connection, sweep_id: int, head: str, new: LedgerSnapshot) -> None:
    """Replace the snapshot of a sweep in the caller's write transaction.

    Args:
        connection: Connection in a write transaction.
        sweep_id: Id of the sweep.
        head: Digest of the event at which the snapshot ends.
        new: The snapshot.
    """
    snapshots.create(connection, checkfirst=True)  # missing in ledgers of older versions
    connection.execute(sa.delete(snapshots).where(snapshots.c.sweep_id == sweep_id))
    values = {"seq": new.seq, "head": head, "made_for": new.made_for, "content": new.content}
    digest = _digest(head, new)
    connection.execute(sa.insert(snapshots).values(sweep_id=sweep_id, digest=digest, **values))


def read(connection: sa.Connection, sweep_id: int) -> LedgerSnapshot | None:
    """Return the snapshot of a sweep; None if no snapshot fits the events."""
    row = _read_row(connection, sweep_id)
    if row is None or not isinstance(row.content, bytes) or not isinstance(row.seq, int):
        return None
    snapshot = LedgerSnapshot(row.seq, str(row.made_for), row.content)
    digest_query = sa.select(events.c.digest).where(
        events.c.sweep_id == sweep_id, events.c.seq == snapshot.seq
    )
    fits = connection.scalar(digest_query) == row.head and _digest(str(row.head), snapshot) == row.digest
    return snapshot if fits else None


def is_unfit(connection: sa.Connection, sweep_id: int) -> bool:
    """Return whether the sweep has a snapshot that does not fit its events."""
    return _read_row(connection, sweep_id) is not None and read(connection, sweep_id) is None


def remove(connection: sa.Connection, sweep_id: int) -> None:
    """Delete the snapshot of a sweep in the caller's write transaction."""
    if sa.inspect(connection).has_table(snapshots.name):
        connection.execute(sa.delete(snapshots).where(snapshots.c.sweep_id == sweep_id))


def _read_row(connection: sa.Connection, sweep_id: int) -> sa.Row[Any] | None:
    if not sa.inspect(connection).has_table(snapshots.name):
        return None
    return connection.execute(sa.select(snapshots).where(snapshots.c.sweep_id == sweep_id)).one_or_none()


def _digest(head: str, of: LedgerSnapshot) -> str:
    content = hashlib.blake2b(f"{of.seq} {head} {of.made_for}\n".encode(), digest_size=SIZE)
    content.update(of.content)
    return content.hexdigest()
