"""Store snapshots: the state after all events of a sweep, so that a session need not read the events.

A snapshot is a cache. Its row holds the position and the digest of its last event, and the digest of its plan
and format. Readers ignore a snapshot that is damaged or does not match the ledger.
"""

import hashlib
from typing import Any

import sqlalchemy as sa

from orchestrator.ledger.chain import DIGEST_BYTES
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


def write_snapshot(connection: sa.Connection, sweep_id: int, head: str, snapshot: LedgerSnapshot) -> None:
    """Replace the snapshot of a sweep in the caller's write transaction.

    Args:
        connection: Connection in a write transaction.
        sweep_id: Id of the sweep.
        head: Digest of the event at which the snapshot ends.
        snapshot: The snapshot.
    """
    snapshots.create(connection, checkfirst=True)  # missing in ledgers of older versions
    connection.execute(sa.delete(snapshots).where(snapshots.c.sweep_id == sweep_id))
    values = {"seq": snapshot.seq, "head": head, "made_for": snapshot.made_for, "content": snapshot.content}
    digest = _snapshot_digest(head, snapshot)
    connection.execute(sa.insert(snapshots).values(sweep_id=sweep_id, digest=digest, **values))


def read_snapshot(connection: sa.Connection, sweep_id: int) -> LedgerSnapshot | None:
    """Return the snapshot of a sweep; None if no snapshot fits the events."""
    row = _read_row(connection, sweep_id)
    if row is None or not isinstance(row.content, bytes) or not isinstance(row.seq, int):
        return None
    snapshot = LedgerSnapshot(row.seq, str(row.made_for), row.content)
    digest_query = sa.select(events.c.digest).where(
        events.c.sweep_id == sweep_id, events.c.seq == snapshot.seq
    )
    is_fit = (
        connection.scalar(digest_query) == row.head
        and _snapshot_digest(str(row.head), snapshot) == row.digest
    )
    return snapshot if is_fit else None


def is_unfit(connection: sa.Connection, sweep_id: int) -> bool:
    """Return whether the sweep has a snapshot that does not fit its events."""
    return _read_row(connection, sweep_id) is not None and read_snapshot(connection, sweep_id) is None


def delete_snapshot(connection: sa.Connection, sweep_id: int) -> None:
    """Delete the snapshot of a sweep in the caller's write transaction."""
    if sa.inspect(connection).has_table(snapshots.name):
        connection.execute(sa.delete(snapshots).where(snapshots.c.sweep_id == sweep_id))


def _read_row(connection: sa.Connection, sweep_id: int) -> sa.Row[Any] | None:
    if not sa.inspect(connection).has_table(snapshots.name):
        return None
    return connection.execute(sa.select(snapshots).where(snapshots.c.sweep_id == sweep_id)).one_or_none()


def _snapshot_digest(head: str, snapshot: LedgerSnapshot) -> str:
    content = hashlib.blake2b(
        f"{snapshot.seq} {head} {snapshot.made_for}\n".encode(), digest_size=DIGEST_BYTES
    )
    content.update(snapshot.content)
    return content.hexdigest()
