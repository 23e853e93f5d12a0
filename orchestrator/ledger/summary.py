"""Summarise the progress of the sweeps of a database without reading their events one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, inspect, select

from orchestrator.errors import StoreError
from orchestrator.ledger import chain
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.lease import LEASE_S
from orchestrator.ledger.sql import schema
from orchestrator.ledger.sql.engine import DAMAGE_ADVICE, missing_file, open_engine, store_time, transaction
from orchestrator.ledger.sql.schema import events, is_retry, sweeps
from orchestrator.ledger.store import read_lease
from orchestrator.trials import OutcomeKind


@dataclass(frozen=True, slots=True)
class Summary:
    """Progress of one sweep of a database."""

    name: str
    uid: str
    is_held: bool
    """Whether the holder is alive, or has a current lease if it cannot be checked."""
    holder: str
    """Process and host of the holder; empty if no process holds the sweep."""
    ended: Mapping[OutcomeKind, int]
    """Number of trials that have ended for good, by outcome."""
    last_activity_at: float | None
    """Unix time in seconds of the newest event or lease renewal; None if there is none."""
    is_done: bool
    """Whether the last session ended with no trial left."""

    @property
    def num_ended(self) -> int:
        """Return the number of planned trials that have ended.

        Infeasible trials are not counted, since other trials replace them.
        """
        return sum(count for kind, count in self.ended.items() if kind is not OutcomeKind.INFEASIBLE)

    @property
    def num_failed(self) -> int:
        """Return the number of ended trials that count as failures."""
        return sum(count for kind, count in self.ended.items() if kind.is_failure)


def read_summaries(url: str, name: str | None = None) -> list[Summary]:
    """Return the summary of every sweep at `url`, or only of the sweep `name`, sorted by name.

    The database is not changed.

    Raises:
        InputError: If `url` cannot hold a ledger.
        StoreError: If the ledger cannot be read.
    """
    with open_engine(url) as engine:
        if (file := missing_file(engine)) is not None:
            raise StoreError(f"the ledger {str(file)!r} does not exist")
        with transaction(engine, write=False) as connection:
            schema.read_version(connection, engine.url.render_as_string(hide_password=True))
            return _read_summaries(connection, name)


def has_sweep(url: str, name: str) -> bool:
    """Return whether the database at `url` has a sweep called `name`; raise the errors of `read_summaries`.

    The database is not changed.
    """
    with open_engine(url) as engine:
        if missing_file(engine) is not None:
            return False
        with transaction(engine, write=False) as connection:
            query = select(sweeps.c.id).where(sweeps.c.name == name)
            return inspect(connection).has_table(sweeps.name) and connection.scalar(query) is not None


def _read_summaries(connection: Connection, name: str | None) -> list[Summary]:
    query = select(sweeps).order_by(sweeps.c.name)
    rows = connection.execute(query if name is None else query.where(sweeps.c.name == name)).all()
    if name is not None and not rows:
        raise StoreError(f"the ledger must hold the sweep {name!r}, but does not")
    ids, now = [row.id for row in rows], store_time(connection)
    outcomes, newest = _outcomes(connection, ids), _newest_events(connection, ids)
    return [_summary(dict(row._mapping), outcomes.get(row.id, {}), newest.get(row.id), now) for row in rows]


def _summary(row: Mapping[str, Any], ended: Mapping[OutcomeKind, int], last: Any, now: float) -> Summary:
    """Return the summary of the sweep of `row`, whose newest event is `last`."""
    if not chain.is_sealed(row):
        raise StoreError(
            f"the row of sweep {row['name']!r} differs from what haltsweep wrote; {DAMAGE_ADVICE}"
        )
    lease = read_lease(row)
    is_held = lease is not None and lease.is_holder_alive(now)
    renewal_times = [lease.expires_at - LEASE_S] if lease is not None and not lease.is_void(now) else []
    event_times = [last.at] if last is not None else []
    return Summary(
        name=row["name"],
        uid=row["uid"],
        is_held=is_held,
        holder=f"process {lease.holder.pid} on {lease.holder.host}" if lease and is_held else "",
        ended=ended,
        last_activity_at=max([*renewal_times, *event_times], default=None),
        is_done=last is not None and last.kind == EventKind.CLOSED and '"done"' in last.payload,
    )


def _outcomes(connection: Connection, ids: Sequence[int]) -> dict[int, dict[OutcomeKind, int]]:
    is_of_sweeps = events.c.sweep_id.in_(ids)
    last_retries = (
        select(events.c.sweep_id, events.c.trial_id, func.max(events.c.seq).label("seq"))
        .where(is_of_sweeps, is_retry())
        .group_by(events.c.sweep_id, events.c.trial_id)
        .subquery()
    )
    is_same_trial = (events.c.sweep_id == last_retries.c.sweep_id) & (
        events.c.trial_id == last_retries.c.trial_id
    )
    query = (
        select(events.c.sweep_id, events.c.outcome, func.count())
        .outerjoin(last_retries, is_same_trial)
        .where(is_of_sweeps, events.c.outcome.is_not(None))
        .where(last_retries.c.seq.is_(None) | (events.c.seq > last_retries.c.seq))
        .group_by(events.c.sweep_id, events.c.outcome)
    )
    outcomes_by_sweep: dict[int, dict[OutcomeKind, int]] = {}
    for sweep_id, outcome, count in connection.execute(query):
        outcomes_by_sweep.setdefault(sweep_id, {})[OutcomeKind(outcome)] = count
    return outcomes_by_sweep


def _newest_events(connection: Connection, ids: Sequence[int]) -> dict[int, Any]:
    """Return the last event of each sweep, by id of the sweep."""
    last_seqs = (
        select(events.c.sweep_id, func.max(events.c.seq).label("seq"))
        .where(events.c.sweep_id.in_(ids))
        .group_by(events.c.sweep_id)
        .subquery()
    )
    query = select(events.c.sweep_id, events.c.at, events.c.kind, events.c.payload).join(
        last_seqs, (events.c.sweep_id == last_seqs.c.sweep_id) & (events.c.seq == last_seqs.c.seq)
    )
    return {row.sweep_id: row for row in connection.execute(query)}
