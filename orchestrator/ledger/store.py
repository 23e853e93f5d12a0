"""The one source of truth of a sweep: an append-only event log in a SQL database."""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Engine, Row, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from orchestrator.errors import LeaseLost, StoreError
from orchestrator.ledger import schema
from orchestrator.ledger.engine import connect, database_file, transaction
from orchestrator.ledger.events import Event
from orchestrator.ledger.lease import Holder, Lease, LeaseHeld
from orchestrator.ledger.rows import from_row, to_row
from orchestrator.ledger.schema import events, sweeps

LEASE_S = 60.0
"""A lease that is not renewed for so long is free for processes on other machines."""
READ_ROWS = 5000
"""Events read in one transaction: long reads would keep SQLite's log from being folded back."""


class TrialEnded(StoreError):
    """A trial that ended for good was written to."""


class Ledger:
    """The log of one sweep: many processes may read, the lease's holder writes. Threads may share it."""

    def __init__(self, engine: Engine, sweep: str, sweep_id: int, clock: Callable[[], float] | None) -> None:
        self._engine = engine
        self._sweep = sweep
        self._id = sweep_id
        self._clock = clock

    @classmethod
    def open(
        cls, url: str, sweep: str, *, create: bool = False, clock: Callable[[], float] | None = None
    ) -> "Ledger":
        """The log of `sweep` at `url` (sqlite:/// or postgresql://); `create` makes what is missing.

        `clock` replaces the store's clock (PostgreSQL: the server's, SQLite: this machine's).
        A launch that must not continue somebody else's sweep opens with `create`, claims, and then looks
        at `empty`. Raises InputError for a place that cannot hold a ledger, StoreError if it cannot be read.
        """
        engine = connect(url)
        try:
            return cls(engine, sweep, _create(engine, sweep) if create else _find(engine, sweep), clock)
        except BaseException:
            engine.dispose()
            raise

    @property
    def sweep(self) -> str:
        """Name of the sweep."""
        return self._sweep

    @property
    def uid(self) -> str:
        """Tells this sweep from others of its name in other ledgers."""
        with transaction(self._engine, write=False) as connection:
            return str(self._row(connection).uid)

    @property
    def empty(self) -> bool:
        """Whether nothing has ever happened to the sweep."""
        return self.last_seq() == 0

    def last_seq(self) -> int:
        """Position of the newest event; 0 in an empty log."""
        with transaction(self._engine, write=False) as connection:
            return int(self._row(connection).last_seq)

    def lease(self) -> Lease | None:
        """Who holds the sweep now; None if it was released. It may be expired, its holder dead."""
        with transaction(self._engine, write=False) as connection:
            return _lease_of(self._row(connection))

    def held(self) -> bool:
        """Whether the sweep's holder lives, or, on another machine, may live."""
        with transaction(self._engine, write=False) as connection:
            lease = _lease_of(self._row(connection))
            if lease is None:
                return False
            lives = lease.holder.lives()
            return lease.expires_at > self._now(connection) if lives is None else lives

    def claim(self, holder: Holder) -> Lease:
        """Take the sweep. Raises LeaseHeld while another process holds it.

        On this machine a dead process's lease is free at once and a live one's never, however late its
        heartbeat; elsewhere only the expiry counts.
        """
        with transaction(self._engine, write=True) as connection:
            row = self._row(connection, lock=True)
            now = self._now(connection)
            current = _lease_of(row)
            if current is not None and not _free(current, holder, now):
                raise LeaseHeld(current, current.expires_at - now)
            lease = Lease(self._sweep, row.token + 1, holder, now + LEASE_S)
            values = {
                "token": lease.token,
                "holder": json.dumps(asdict(holder)),
                "expires_at": lease.expires_at,
            }
            connection.execute(update(sweeps).where(sweeps.c.id == self._id).values(values))
            return lease

    def renew(self, lease: Lease) -> Lease:
        """Heartbeat: the lease, valid for another `LEASE_S`. Raises LeaseLost."""
        with transaction(self._engine, write=True) as connection:
            expires_at = self._now(connection) + LEASE_S
            self._fence(connection, lease, 0, expires_at)
        return Lease(lease.sweep, lease.token, lease.holder, expires_at)

    def release(self, lease: Lease) -> None:
        """Let go of the sweep; a lease that was lost already is let go of silently."""
        with transaction(self._engine, write=True) as connection:
            mine = (sweeps.c.id == self._id) & (sweeps.c.token == lease.token)
            connection.execute(update(sweeps).where(mine).values(holder=None, expires_at=0.0))

    def append(self, new: Sequence[Event], lease: Lease) -> None:
        """Write all of `new` or nothing, durably; renews the lease on the way.

        A second measurement of a trial at a step is ignored: the first wins. Raises LeaseLost if somebody
        else claimed the sweep, TrialEnded for an event after a trial's final end, ValueError for metrics
        that are not finite, StoreError if the database fails.
        """
        rows = [to_row(event) for event in new]
        if not rows:
            return
        with transaction(self._engine, write=True) as connection:
            last = self._fence(connection, lease, len(rows), self._now(connection) + LEASE_S)
            self._refuse_ended(connection, rows)
            first = last - len(rows) + 1
            for seq, row in enumerate(rows, start=first):
                row |= {"sweep_id": self._id, "seq": seq}
            connection.execute(_INSERT[connection.dialect.name], rows)

    def events(self, after: int = 0) -> Iterator[Event]:
        """Events behind position `after`, oldest first, up to the newest at the moment of reading."""
        query = select(*_COLUMNS).where(events.c.sweep_id == self._id).order_by(events.c.seq).limit(READ_ROWS)
        while True:
            with transaction(self._engine, write=False) as connection:
                rows = connection.execute(query.where(events.c.seq > after)).all()
            yield from map(from_row, rows)
            if len(rows) < READ_ROWS:
                return
            after = rows[-1].seq

    def close(self) -> None:
        """Close the connections. A lease that was not released stays."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _now(self, connection: Connection) -> float:
        if self._clock is not None:
            return self._clock()
        if connection.dialect.name == "postgresql":
            return float(connection.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0)
        return time.time()

    def _row(self, connection: Connection, *, lock: bool = False) -> Row[Any]:
        query = select(sweeps).where(sweeps.c.id == self._id)
        return connection.execute(query.with_for_update() if lock else query).one()

    def _fence(self, connection: Connection, lease: Lease, num_rows: int, expires_at: float) -> int:
        # One statement checks the token, locks the sweep until the commit, numbers the rows and renews.
        statement = (
            update(sweeps)
            .where(sweeps.c.id == self._id, sweeps.c.token == lease.token, sweeps.c.holder.is_not(None))
            .values(last_seq=sweeps.c.last_seq + num_rows, expires_at=expires_at)
            .returning(sweeps.c.last_seq)
        )
        last = connection.execute(statement).scalar_one_or_none()
        if last is None:
            raise self._lost(self._row(connection), lease)
        return int(last)

    def _lost(self, row: Row[Any], lease: Lease) -> LeaseLost:
        current = _lease_of(row)
        what = "was released"
        if current is not None:
            what = f"was taken by process {current.holder.pid} on {current.holder.host!r}"
        return LeaseLost(
            f"only the newest holder may write to sweep {self._sweep!r}: it {what} with token {row.token}, "
            f"ours is {lease.token}; nothing of ours was written, so stop this process"
        )

    def _refuse_ended(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
        ids = {row["trial_id"] for row in rows} - {None}
        query = select(events.c.trial_id, events.c.outcome).where(
            events.c.sweep_id == self._id, events.c.outcome.is_not(None), events.c.trial_id.in_(ids)
        )
        ended = {row.trial_id: row.outcome for row in connection.execute(query)} if ids else {}
        for row in rows:
            trial_id = row["trial_id"]
            if trial_id in ended:
                raise TrialEnded(
                    f"nothing may happen to a trial after its end: {trial_id} is {ended[trial_id]}, "
                    f"got an event {row['kind']!r}; nothing was written"
                )
            if row["outcome"] is not None:
                ended[trial_id] = row["outcome"]


_COLUMNS = tuple(events.c[name] for name in ("seq", "kind", "at", "trial_id", "step", "seconds", "payload"))
_ONE_A_STEP = [events.c.sweep_id, events.c.trial_id, events.c.step]
_INSERT = {
    "sqlite": sqlite.insert(events).on_conflict_do_nothing(
        index_elements=_ONE_A_STEP, index_where=schema.ONE_A_STEP
    ),
    "postgresql": postgresql.insert(events).on_conflict_do_nothing(
        index_elements=_ONE_A_STEP, index_where=schema.ONE_A_STEP
    ),
}


def _create(engine: Engine, sweep: str) -> int:
    with transaction(engine, write=True) as connection:
        schema.create(connection)
        schema.verify(connection, str(engine.url))
        known = connection.scalar(select(sweeps.c.id).where(sweeps.c.name == sweep))
        if known is None:
            known = connection.scalar(
                insert(sweeps).values(name=sweep, uid=uuid.uuid4().hex).returning(sweeps.c.id)
            )
            assert known is not None, "the row just inserted has an id"
        return int(known)


def _find(engine: Engine, sweep: str) -> int:
    if engine.dialect.name == "sqlite" and not database_file(engine.url).exists():
        raise StoreError(
            f"no ledger at {str(database_file(engine.url))!r}; check the path, or launch the sweep first"
        )
    with transaction(engine, write=False) as connection:
        schema.verify(connection, str(engine.url))
        known = connection.scalar(select(sweeps.c.id).where(sweeps.c.name == sweep))
        if known is None:
            names = sorted(connection.scalars(select(sweeps.c.name)))
            raise StoreError(
                f"no sweep {sweep!r} in the ledger at {engine.url}; it holds: {', '.join(names) or 'none'}"
            )
        return int(known)


def _lease_of(row: Row[Any]) -> Lease | None:
    return (
        Lease(row.name, row.token, Holder(**json.loads(row.holder)), row.expires_at) if row.holder else None
    )


def _free(current: Lease, claimant: Holder, now: float) -> bool:
    lives = current.holder.lives()
    if lives is None or (lives and current.holder.same_process(claimant)):
        return current.expires_at <= now
    return not lives
