"""Read and write the event log of a sweep in a SQL database."""

import json
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Self

from sqlalchemy import Connection, insert, select, update

from orchestrator.errors import Fault, LeaseLost
from orchestrator.files.json_values import from_json_values, parse_json, to_json_values
from orchestrator.ledger import chain, snapshots, stop_requests, sweep_row
from orchestrator.ledger.event_filter import filter_new_events
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.lease import LEASE_S, Holder, Lease, LeaseHeldError
from orchestrator.ledger.ledger_reader import LedgerReader
from orchestrator.ledger.ledger_snapshot import LedgerSnapshot
from orchestrator.ledger.sql.database import Database
from orchestrator.ledger.sql.engine import connect, store_time
from orchestrator.ledger.sql.outage import OnOutage
from orchestrator.ledger.sql.rows import from_row, to_row
from orchestrator.ledger.sql.schema import events, sweeps
from orchestrator.ledger.stop_requests import StopRequest
from trainables.process_identity import ProcessState

VOID_LEASE_WAIT_S = LEASE_S / 2
"""Seconds to wait for a renewal of a lease with a void expiry; a live holder renews it twice in that time."""
POLL_S = 0.5
"""Seconds between two checks of such a lease."""
PATIENCE_S = 180.0
"""Seconds for which a sweep retries an unavailable database; a server may take two minutes to restart."""


OnLeaseTaken = Callable[[Lease], None]
"""Callback that receives the lease of a session whose sweep was taken by another process."""


class Ledger:
    """Event log of one sweep; many processes may read, only the holder of the lease writes.

    Threads may share a ledger. A transaction that fails for a temporary reason (a server restarts, a database
    is locked) is retried for `patience_s` seconds. Rows are verified when they are read:
    a StoreError names the first event that was changed, removed or inserted.
    """

    def __init__(
        self, database: Database, sweep: str, sweep_id: int, clock: Callable[[], float] | None
    ) -> None:
        self._database = database
        self._sweep = sweep
        self._id = sweep_id
        self._clock = clock
        self._reader = LedgerReader(database, sweep, sweep_id)

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
        """Open the log of `sweep` at `url`.

        A ledger of an older version is upgraded by `create` and `claim`.

        Args:
            url: URL of the database, sqlite:/// or postgresql://.
            sweep: Name of the sweep.
            create: Whether to create missing tables and the row of the sweep.
            clock: Replacement of the store's clock. By default, PostgreSQL uses the server's clock and SQLite
                this machine's.
            patience_s: Seconds for which an unavailable database is retried.
            on_outage: Callback for the begin and the end of an outage.

        Raises:
            InputError: If `url` cannot hold a ledger.
            StoreError: If the ledger cannot be read.
        """
        database = Database(connect(url, write_ahead=create), patience_s, on_outage)
        try:
            sweep_id = (
                sweep_row.find_or_create(database, sweep)
                if create
                else sweep_row.find_sweep_id(database, sweep)
            )
            return cls(database, sweep, sweep_id, clock)
        except BaseException:
            database.close()
            raise

    @property
    def sweep(self) -> str:
        """Name of the sweep."""
        return self._sweep

    @property
    def uid(self) -> str:
        """Return the identifier that distinguishes sweeps of equal name in different ledgers."""
        return str(self._read_sweep_row()["uid"])

    @property
    def has_trials(self) -> bool:
        """Return whether any trial ever received its assignment."""
        is_start = (events.c.sweep_id == self._id) & (events.c.kind == EventKind.PARAMS_ASSIGNED.value)
        query = select(events.c.seq).where(is_start).limit(1)
        return self._database.run(lambda connection: connection.scalar(query), write=False) is not None

    def last_seq(self) -> int:
        """Return the position of the newest event; 0 in an empty log."""
        return int(self._read_sweep_row()["last_seq"])

    def lease(self) -> Lease | None:
        """Return the current lease; None if it was released. It may be expired, or its holder dead."""
        return read_lease(self._read_sweep_row())

    def is_held(self) -> bool:
        """Return whether the holder is alive, or has a current lease if its process cannot be checked."""

        def look(connection: Connection) -> bool:
            lease = read_lease(self._reader.read_sweep(connection))
            return lease is not None and lease.is_holder_alive(self._read_clock(connection))

        return self._database.run(look, write=False)

    def silent_holder(self) -> tuple[Holder, float | None] | None:
        """Return the holder of an expired lease if its process cannot be checked, with `Lease.silent_s`.

        None if there is no such holder.
        """

        def look(connection: Connection) -> tuple[Holder, float | None] | None:
            lease, now = read_lease(self._reader.read_sweep(connection)), self._read_clock(connection)
            if lease is None or lease.is_holder_alive(now):
                return None
            is_unknown = lease.holder.state() is ProcessState.UNKNOWN
            return (lease.holder, lease.silent_s(now)) if is_unknown else None

        return self._database.run(look, write=False)

    def claim(
        self,
        holder: Holder,
        *,
        grace_s: float = 0.0,
        on_fenced: OnLeaseTaken | None = None,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> Lease:
        """Claim the sweep.

        A dead holder's lease is free at once, a live holder's never. If the holder's process cannot be
        checked, its lease is free once it has expired. An expiry that is too far in the future comes from a
        wrong clock: such a lease is free if it is not renewed for `VOID_LEASE_WAIT_S`.

        Args:
            holder: The process that claims the sweep.
            grace_s: Additional seconds after the expiry of a holder that cannot be checked.
            on_fenced: If given, the sweep is taken even from a live holder, and this is called with its
                lease.
            on_wait: Called with a message while a lease is watched.

        Returns:
            The lease, with which only its holder can write.

        Raises:
            LeaseHeldError: Another process holds the sweep, or may hold it.
        """
        sweep_row.upgrade_ledger(self._database)
        free_lease = self._wait_for_expiry(on_wait) if on_fenced is None and not grace_s else None
        attempted_leases: list[Lease] = []
        fenced_leases: list[Lease] = []

        def take_lease(connection: Connection) -> Lease:
            row = self._reader.read_sweep(connection, lock=True)
            now = self._read_clock(connection)
            current = read_lease(row)
            if (
                current is not None and current in attempted_leases
            ):  # the transaction was committed, but its reply was lost
                return current
            fenced_leases.clear()
            if current is not None and current != free_lease and not _is_free(current, holder, now, grace_s):
                if on_fenced is None:
                    raise LeaseHeldError(current, now)
                fenced_leases.append(current)
            lease = Lease(self._sweep, row["token"] + 1, holder, now + LEASE_S)
            attempted_leases.append(lease)
            text = json.dumps(to_json_values(holder))
            self._update_sweep_row(
                connection, row, token=lease.token, holder=text, expires_at=lease.expires_at
            )
            return lease

        claimed_lease = self._database.run(take_lease, write=True)
        if on_fenced is not None and fenced_leases:
            on_fenced(fenced_leases[0])
        return claimed_lease

    def _wait_for_expiry(self, on_wait: Callable[[str], None]) -> Lease | None:
        """Return a lease with a void expiry if its holder does not renew it for `VOID_LEASE_WAIT_S`."""

        def look(connection: Connection) -> Lease | None:
            lease = read_lease(self._reader.read_sweep(connection))
            return lease if lease is not None and lease.is_void(self._read_clock(connection)) else None

        first_lease = self._database.run(look, write=False)
        if first_lease is None or first_lease.holder.state() is not ProcessState.UNKNOWN:
            return None
        on_wait(f"waiting {VOID_LEASE_WAIT_S:.0f} s for a renewal by {first_lease.holder}")
        deadline = time.monotonic() + VOID_LEASE_WAIT_S
        while time.monotonic() < deadline:
            time.sleep(POLL_S)
            if self.lease() != first_lease:
                return None
        return first_lease

    def renew(self, lease: Lease) -> Lease:
        """Renew the lease for another `LEASE_S`, without retries.

        Raises:
            LeaseLost: If another process claimed the sweep.
            StoreError: If the database fails.
        """

        def prolong(connection: Connection) -> float:
            row = self._check_lease(self._reader.read_sweep(connection, lock=True), lease)
            expires_at = self._read_clock(connection) + LEASE_S
            self._update_sweep_row(connection, row, expires_at=expires_at)
            return expires_at

        expires_at = self._database.run(prolong, write=True, patient=False)
        return Lease(lease.sweep, lease.token, lease.holder, expires_at)

    def release(self, lease: Lease, *, patient: bool = True) -> None:
        """Release the sweep; a lease that was already lost is ignored."""

        def release_lease(connection: Connection) -> None:
            row = self._reader.read_sweep(connection, lock=True)
            if row["token"] == lease.token:
                self._update_sweep_row(connection, row, holder=None, expires_at=0.0)

        self._database.run(release_lease, write=True, patient=patient)

    def request_stop(self, requester: str, *, at_once: bool = False) -> Lease | None:
        """Request that the sweep's holder stops; no lease is needed.

        Args:
            requester: User or process that requests the stop.
            at_once: Whether running trials are abandoned instead of writing a checkpoint.

        Returns:
            The lease of the holder; None if no process holds the sweep.
        """

        def ask(connection: Connection) -> Lease | None:
            lease = read_lease(self._reader.read_sweep(connection, lock=True))
            now = self._read_clock(connection)
            if lease is None or not lease.is_holder_alive(now):
                return None
            stop_requests.write_stop_request(
                connection, self._id, lease.token, StopRequest(requester, now, at_once)
            )
            return lease

        return self._database.run(ask, write=True)

    def stop_request(self, lease: Lease) -> StopRequest | None:
        """Return the stop request for the holder of `lease`, without retries; None if there is none.

        Raises:
            StoreError: If the database fails.
        """

        def read(connection: Connection) -> StopRequest | None:
            return stop_requests.read_stop_request(connection, self._id, lease.token)

        return self._database.run(read, write=False, patient=False)

    def append(self, new_events: Sequence[Event], lease: Lease) -> None:
        """Write all events in `new_events` in one durable transaction, exactly once, and renew the lease.

        A second measurement of a trial at the same step is ignored.

        Raises:
            LeaseLost: If another process claimed the sweep.
            EventAfterEndError: For an event after a trial's final end.
            StoreError: If the database fails.
        """
        rows = [to_row(event) for event in new_events]
        if not rows:
            return
        attempted_writes: list[tuple[int, str]] = []

        def write(connection: Connection) -> None:
            row = self._reader.read_sweep(connection, lock=True)
            # This check needs the lock: a commit without an answer may not have arrived before.
            if any(self._reader.has_event(connection, *record) for record in attempted_writes):
                return
            self._check_lease(row, lease)
            head, new_values = row["head"], []
            new_rows = filter_new_events(connection, self._id, rows)
            for seq, ledger_row in enumerate(new_rows, row["last_seq"] + 1):
                values = dict(ledger_row) | {"seq": seq}
                head = chain.link_digest(head, [values[name] for name in chain.CHAINED_COLUMNS])
                new_values.append(values | {"sweep_id": self._id, "digest": head})
            last_seq = row["last_seq"] + len(new_values)
            if new_values:
                attempted_writes.append((last_seq, head))
                connection.execute(insert(events), new_values)
            expires_at = self._read_clock(connection) + LEASE_S
            self._update_sweep_row(connection, row, last_seq=last_seq, head=head, expires_at=expires_at)

        self._database.run(write, write=True)

    def snapshot(self) -> LedgerSnapshot | None:
        """Return the newest snapshot; None if there is none that fits the events."""
        return self._database.run(
            lambda connection: snapshots.read_snapshot(connection, self._id), write=False
        )

    def has_unfit_snapshot(self) -> bool:
        """Return whether there is a snapshot that does not fit the events."""
        return self._database.run(lambda connection: snapshots.is_unfit(connection, self._id), write=False)

    def save_snapshot(self, new: LedgerSnapshot, lease: Lease) -> None:
        """Replace the stored snapshot, without retries; raise the errors of `append`.

        A snapshot that does not end at the newest event is ignored.
        """

        def save(connection: Connection) -> None:
            row = self._check_lease(self._reader.read_sweep(connection, lock=True), lease)
            if row["last_seq"] == new.seq:
                snapshots.write_snapshot(connection, self._id, row["head"], new)

        self._database.run(save, write=True, patient=False)

    def delete_snapshot(self) -> None:
        """Delete the snapshot, if there is one."""
        self._database.run(lambda connection: snapshots.delete_snapshot(connection, self._id), write=True)

    def events(self, after_seq: int = 0) -> Iterator[Event]:
        """Yield events after position `after_seq`, oldest first, up to the newest at the time of reading.

        Raises:
            StoreError: If an event was changed; raised at the first such event.
        """
        return map(from_row, self._reader.rows(after_seq))

    def last_reports(self, complete_ids: Container[str]) -> Iterator[Event]:
        """Yield all events except measurements that are followed by a newer one of the same trial.

        The last measurement of a trial is yielded late: just before the next other event of its trial, or at
        the end.

        Args:
            complete_ids: Ids of trials of which all measurements are yielded.

        Raises:
            StoreError: If an event was changed; raised at the first such event.
        """
        newest: dict[str, Sequence[Any]] = {}
        for row in self._reader.rows(0):
            _, _, _, trial_id, step, *_ = row
            if step is not None and trial_id not in complete_ids:
                newest[trial_id] = row
                continue
            if trial_id in newest:
                yield from_row(newest.pop(trial_id))
            yield from_row(row)
        yield from map(from_row, newest.values())

    def rows(self) -> Iterator[Sequence[Any]]:
        """Yield `chain.CHAINED_COLUMNS` and the digest of all events; raise the errors of `events`."""
        return self._reader.rows(0)

    def newest_events(
        self,
        *,
        after_seq: int = 0,
        first_seqs: Mapping[str, int] = MappingProxyType({}),
        every_report: bool = False,
    ) -> Iterator[Event]:
        """Return the events that records need, with only the last measurement of each trial.

        Args:
            after_seq: Position of an event; earlier events are omitted.
            first_seqs: Trials whose earlier events are also returned, with positions of their `asked`
                events.
            every_report: Whether all measurements are returned.

        Raises:
            StoreError: An event was changed; raised for the first.
        """
        reader = self._reader
        rows = reader.newest_rows(after_seq=after_seq, first_seqs=first_seqs, every_report=every_report)
        return map(from_row, rows)

    def verify(self) -> list[Fault]:
        """Return all faults of the log; empty if no row was changed."""
        return self._reader.faults()

    def close(self) -> None:
        """Close the connections; a lease that was not released remains."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _read_sweep_row(self) -> Mapping[str, Any]:
        return self._database.run(self._reader.read_sweep, write=False)

    def _read_clock(self, connection: Connection) -> float:
        return self._clock() if self._clock is not None else store_time(connection)

    def _update_sweep_row(self, connection: Connection, row: Mapping[str, Any], **changes: Any) -> None:
        """Change the sweep's row, which must be locked."""
        seal = chain.seal_digest(dict(row) | changes)
        connection.execute(update(sweeps).where(sweeps.c.id == self._id).values(**changes, seal=seal))

    def _check_lease(self, row: Mapping[str, Any], lease: Lease) -> Mapping[str, Any]:
        """Return the sweep's row if `lease` is the newest; raise `LeaseLost` otherwise."""
        if row["token"] == lease.token and row["holder"] is not None:
            return row
        current = read_lease(row)
        reason = "was released" if current is None else f"was taken by {current.holder}"
        raise LeaseLost(
            f"only the newest holder may write to sweep {self._sweep!r}: the sweep {reason} with token "
            f"{row['token']}, but this process has {lease.token}. It wrote nothing; stop this process"
        )


def read_lease(row: Mapping[str, Any]) -> Lease | None:
    """Return the lease in a row of `sweeps`; None if it has none. It may be expired, or its holder dead."""
    if not row["holder"]:
        return None
    holder = from_json_values(Holder, parse_json(row["holder"]))
    return Lease(row["name"], row["token"], holder, row["expires_at"])


def _is_free(current: Lease, claimant: Holder, now: float, grace_s: float) -> bool:
    state = current.holder.state()
    if state is ProcessState.ALIVE:
        return current.holder.is_same_process(claimant) and current.expires_at <= now
    return state is ProcessState.DEAD or current.expires_at + grace_s <= now
