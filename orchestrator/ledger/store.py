"""The one source of truth of a sweep: an append-only event log in a SQL database."""

import json
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Self

from sqlalchemy import Connection, insert, select, update

from orchestrator.errors import Fault, LeaseLost
from orchestrator.files.json_values import from_json_values, parsed, to_json_values
from orchestrator.ledger import chain, opening, snapshots, stops
from orchestrator.ledger.admission import admitted
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.lease import LEASE_S, Holder, Lease, LeaseHeld
from orchestrator.ledger.ledger_snapshot import LedgerSnapshot
from orchestrator.ledger.reading import Reader
from orchestrator.ledger.sql.database import Database
from orchestrator.ledger.sql.engine import connect, store_time
from orchestrator.ledger.sql.outage import OnOutage
from orchestrator.ledger.sql.rows import from_row, to_row
from orchestrator.ledger.sql.schema import events, sweeps
from orchestrator.ledger.stops import StopRequest
from trainables.process_identity import ProcessState

WATCHED_S = LEASE_S / 2
"""How long a lease with a void expiry is watched: a living holder renews it twice in so long."""
LOOK_S = 0.5
"""Between two looks at such a lease."""
PATIENCE_S = 180.0
"""How long a sweep waits for a database that is away: its server may take two minutes to restart."""


OnFenced = Callable[[Lease], None]
"""Called with the lease of a session that can write no more, since another process took its sweep."""


class Ledger:
    """The log of one sweep: many processes may read, the lease's holder writes. Threads may share it.

    A transaction that fails for a reason that may pass (a server restarts, a database is locked) is tried
    again for as long as the ledger was opened with. What is read was written so, or a StoreError says which
    event was changed, removed or put in.
    """

    def __init__(
        self, database: Database, sweep: str, sweep_id: int, clock: Callable[[], float] | None
    ) -> None:
        self._database = database
        self._sweep = sweep
        self._id = sweep_id
        self._clock = clock
        self._reader = Reader(database, sweep, sweep_id)

    @classmethod
    def open(
        cls,
        url: str,
        sweep: str,
        *,
        create: bool = False,
        clock: Callable[[], float] | None = None,
        patience_s: float = 0.0,
        on_outage: OnOutage | None = None,
    ) -> "Ledger":
        """The log of `sweep` at `url` (sqlite:/// or postgresql://); `create` makes what is missing.

        `clock` replaces the store's clock (PostgreSQL: the server's, SQLite: this machine's). A database that
        is away is waited for `patience_s` seconds; `on_outage` hears. A ledger of an earlier haltsweep is
        upgraded by `create` and `claim`. A launch that must not continue somebody else's sweep opens with
        `create`, claims, and then looks at `empty`. Raises InputError for a place that cannot hold a ledger,
        StoreError if it cannot be read.
        """
        database = Database(connect(url, write_ahead=create), patience_s, on_outage)
        try:
            found = opening.create(database, sweep) if create else opening.find(database, sweep)
            return cls(database, sweep, found, clock)
        except BaseException:
            database.close()
            raise

    @property
    def sweep(self) -> str:
        """Name of the sweep."""
        return self._sweep

    @property
    def uid(self) -> str:
        """Tells this sweep from others of its name in other ledgers."""
        return str(self._read()["uid"])

    @property
    def empty(self) -> bool:
        """Whether nothing has ever happened to the sweep."""
        return self.last_seq() == 0

    @property
    def begun(self) -> bool:
        """Whether a trial was ever asked for."""
        asked = (events.c.sweep_id == self._id) & (events.c.kind == EventKind.ASKED.value)
        first = select(events.c.seq).where(asked).limit(1)
        return self._database.run(lambda connection: connection.scalar(first), write=False) is not None

    def last_seq(self) -> int:
        """Position of the newest event; 0 in an empty log."""
        return int(self._read()["last_seq"])

    def lease(self) -> Lease | None:
        """Who holds the sweep now; None if it was released. It may be expired, its holder dead."""
        return lease_of(self._read())

    def held(self) -> bool:
        """Whether the sweep's holder is alive, or renewed its lease lately if nobody can tell."""

        def look(connection: Connection) -> bool:
            lease = lease_of(self._reader.sweep(connection))
            return lease is not None and lease.stands(self._now(connection))

        return self._database.run(look, write=False)

    def silent_holder(self) -> tuple[Holder, float | None] | None:
        """Return a holder that nobody can look up and whose lease is over, and `Lease.silent_s`."""

        def look(connection: Connection) -> tuple[Holder, float | None] | None:
            lease, now = lease_of(self._reader.sweep(connection)), self._now(connection)
            if lease is None or lease.stands(now) or lease.holder.state() is not ProcessState.UNKNOWN:
                return None
            return lease.holder, lease.silent_s(now)

        return self._database.run(look, write=False)

    def claim(
        self,
        holder: Holder,
        *,
        grace_s: float = 0.0,
        on_fenced: OnFenced | None = None,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> Lease:
        """Take the sweep.

        A dead holder's lease is free at once, a living holder's never. If nobody can tell whether the holder
        is alive, its lease is free once it has expired. An expiry that is too far in the future comes from a
        clock that was wrong: such a lease is free if it is not renewed for `WATCHED_S`.

        Args:
            holder: The process that takes the sweep.
            grace_s: Seconds by which a holder that nobody can look up may be late.
            on_fenced: If given, the sweep is taken from whoever holds it, and this is called with that lease.
            on_wait: Called with what is waited for.

        Returns:
            The lease, by which only its holder can write.

        Raises:
            LeaseHeld: Another process holds the sweep, or may hold it.
        """
        opening.bring_up_to_date(self._database)
        unrenewed = self._unrenewed(on_wait) if on_fenced is None and not grace_s else None
        tried: list[Lease] = []
        fenced: list[Lease] = []

        def take(connection: Connection) -> Lease:
            row = self._reader.sweep(connection, lock=True)
            now = self._now(connection)
            current = lease_of(row)
            if current is not None and current in tried:  # it was committed, only its answer was lost
                return current
            fenced.clear()
            if current is not None and current != unrenewed and not _is_free(current, holder, now, grace_s):
                if on_fenced is None:
                    raise LeaseHeld(current, now)
                fenced.append(current)
            lease = Lease(self._sweep, row["token"] + 1, holder, now + LEASE_S)
            tried.append(lease)
            text = json.dumps(to_json_values(holder))
            self._put(connection, row, token=lease.token, holder=text, expires_at=lease.expires_at)
            return lease

        taken = self._database.run(take, write=True)
        if on_fenced is not None and fenced:
            on_fenced(fenced[0])
        return taken

    def _unrenewed(self, on_wait: Callable[[str], None]) -> Lease | None:
        """Return the lease if its expiry is void and its holder unknown and silent for `WATCHED_S`."""

        def look(connection: Connection) -> Lease | None:
            lease = lease_of(self._reader.sweep(connection))
            return lease if lease is not None and lease.is_void(self._now(connection)) else None

        first = self._database.run(look, write=False)
        if first is None or first.holder.state() is not ProcessState.UNKNOWN:
            return None
        on_wait(f"waiting {WATCHED_S:.0f} s for a sign of life of {first.holder}")
        until = time.monotonic() + WATCHED_S
        while time.monotonic() < until:
            time.sleep(LOOK_S)
            if self.lease() != first:
                return None
        return first

    def renew(self, lease: Lease) -> Lease:
        """Heartbeat, tried once: the lease, valid for another `LEASE_S`. Raises LeaseLost, StoreError."""

        def prolong(connection: Connection) -> float:
            row = self._fenced(self._reader.sweep(connection, lock=True), lease)
            expires_at = self._now(connection) + LEASE_S
            self._put(connection, row, expires_at=expires_at)
            return expires_at

        expires_at = self._database.run(prolong, write=True, patient=False)
        return Lease(lease.sweep, lease.token, lease.holder, expires_at)

    def release(self, lease: Lease, *, patient: bool = True) -> None:
        """Let go of the sweep; a lease that was lost already is let go of silently."""

        def let_go(connection: Connection) -> None:
            row = self._reader.sweep(connection, lock=True)
            if row["token"] == lease.token:
                self._put(connection, row, holder=None, expires_at=0.0)

        self._database.run(let_go, write=True, patient=patient)

    def ask_to_stop(self, by: str, *, at_once: bool = False) -> Lease | None:
        """Ask the sweep's holder to let go, without a lease. Whose lease it is; None if nobody holds it.

        `by` says who asks; with `at_once` running trials are given up instead of being saved.
        """

        def ask(connection: Connection) -> Lease | None:
            lease = lease_of(self._reader.sweep(connection, lock=True))
            now = self._now(connection)
            if lease is None or not lease.stands(now):
                return None
            stops.write(connection, self._id, lease.token, StopRequest(by, now, at_once))
            return lease

        return self._database.run(ask, write=True)

    def stop_asked(self, lease: Lease) -> StopRequest | None:
        """Whether the holder of `lease` was asked to let go; tried once. Raises StoreError."""
        return self._database.run(
            lambda connection: stops.read(connection, self._id, lease.token), write=False, patient=False
        )

    def append(self, new: Sequence[Event], lease: Lease) -> None:
        """Write all of `new` or nothing, durably and once; renews the lease on the way.

        A second measurement of a trial at a step is ignored: the first wins. Raises LeaseLost if another
        process claimed the sweep, TrialEnded for an event after a trial's final end, StoreError if the
        database fails.
        """
        rows = [to_row(event) for event in new]
        if not rows:
            return
        tried: list[tuple[int, str]] = []

        def write(connection: Connection) -> None:
            row = self._reader.sweep(connection, lock=True)
            # Only under the lock: until then a commit whose answer was lost may still be on its way.
            if any(self._reader.holds(connection, *each) for each in tried):
                return
            self._fenced(row, lease)
            last, head = row["last_seq"], row["head"]
            fresh = []
            for each in admitted(connection, self._id, rows):
                last += 1
                values = dict(each) | {"seq": last}
                head = chain.link(head, [values[name] for name in chain.CHAINED])
                fresh.append(values | {"sweep_id": self._id, "digest": head})
            if fresh:
                tried.append((last, head))
                connection.execute(insert(events), fresh)
            self._put(connection, row, last_seq=last, head=head, expires_at=self._now(connection) + LEASE_S)

        self._database.run(write, write=True)

    def snapshot(self) -> LedgerSnapshot | None:
        """Return the newest snapshot; None if there is none, or only one that does not fit the events."""
        return self._database.run(lambda connection: snapshots.read(connection, self._id), write=False)

    def has_unfit_snapshot(self) -> bool:
        """Return whether there is a snapshot that does not fit the events."""
        return self._database.run(lambda connection: snapshots.is_unfit(connection, self._id), write=False)

    def save_snapshot(self, new: LedgerSnapshot, lease: Lease) -> None:
        """Store a snapshot in place of the one before, tried once. Raises as `append`.

        A snapshot that does not end at the newest event is ignored.
        """

        def save(connection: Connection) -> None:
            row = self._fenced(self._reader.sweep(connection, lock=True), lease)
            if row["last_seq"] == new.seq:
                snapshots.write(connection, self._id, row["head"], new)

        self._database.run(save, write=True, patient=False)

    def delete_snapshot(self) -> None:
        """Delete the snapshot, if there is one."""
        self._database.run(lambda connection: snapshots.remove(connection, self._id), write=True)

    def events(self, after: int = 0) -> Iterator[Event]:
        """Events behind position `after`, oldest first, up to the newest at the moment of reading.

        Raises StoreError for the first that is not as it was written.
        """
        return map(from_row, self._reader.rows(after))

    def last_reports(self, whole: Container[str]) -> Iterator[Event]:
        """All events but the measurements that a newer one of their trial follows. Raises as `events`.

        Of the trials `whole` all measurements are returned. The newest of the others come late: before the
        next event of their trials that is none.
        """
        newest: dict[str, Sequence[Any]] = {}
        for row in self._reader.rows(0):
            _, _, _, trial_id, step, *_ = row
            if step is not None and trial_id not in whole:
                newest[trial_id] = row
                continue
            if trial_id in newest:
                yield from_row(newest.pop(trial_id))
            yield from_row(row)
        yield from map(from_row, newest.values())

    def rows(self) -> Iterator[Sequence[Any]]:
        """All events as they are chained (`chain.CHAINED`), each with its digest. Raises as `events`."""
        return self._reader.rows(0)

    def newest(
        self, *, after: int = 0, also: Mapping[str, int] = MappingProxyType({}), every_report: bool = False
    ) -> Iterator[Event]:
        """All events that make records, of the measurements only the last of every trial: a quick look.

        Args:
            after: Position of an event; earlier events are left out.
            also: Trials of which earlier events are returned, too, with positions of their `asked` events.
            every_report: Whether all measurements are returned.

        Raises:
            StoreError: An event is not as it was written; raised for the first.
        """
        rows = self._reader.newest_rows(after=after, also=also, every_report=every_report)
        return map(from_row, rows)

    def verify(self) -> list[Fault]:
        """Everything in the log that is not as it was written; empty if all is well."""
        return self._reader.faults()

    def close(self) -> None:
        """Close the connections. A lease that was not released stays."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _read(self) -> Mapping[str, Any]:
        return self._database.run(self._reader.sweep, write=False)

    def _now(self, connection: Connection) -> float:
        return self._clock() if self._clock is not None else store_time(connection)

    def _put(self, connection: Connection, row: Mapping[str, Any], **changed: Any) -> None:
        """Change the sweep's row, which is locked."""
        seal = chain.seal(dict(row) | changed)
        connection.execute(update(sweeps).where(sweeps.c.id == self._id).values(**changed, seal=seal))

    def _fenced(self, row: Mapping[str, Any], lease: Lease) -> Mapping[str, Any]:
        """The sweep's row, if `lease` is the newest."""
        if row["token"] == lease.token and row["holder"] is not None:
            return row
        current = lease_of(row)
        what = "was released"
        if current is not None:
            what = f"was taken by {current.holder}"
        raise LeaseLost(
            f"only the newest holder may write to sweep {self._sweep!r}: it {what} with token "
            f"{row['token']}, ours is {lease.token}; nothing of ours was written, so stop this process"
        )


def lease_of(row: Mapping[str, Any]) -> Lease | None:
    """The lease in a row of `sweeps`; None if nobody has one. It may be expired, its holder dead."""
    if not row["holder"]:
        return None
    return Lease(
        row["name"], row["token"], from_json_values(Holder, parsed(row["holder"])), row["expires_at"]
    )


def _is_free(current: Lease, claimant: Holder, now: float, grace_s: float) -> bool:
    state = current.holder.state()
    if state is ProcessState.ALIVE:
        return current.holder.is_same_process(claimant) and current.expires_at <= now
    return state is ProcessState.DEAD or current.expires_at + grace_s <= now
