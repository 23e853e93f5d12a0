"""Read the rows of one sweep and verify that they are unchanged."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain as concatenate
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Select, and_, func, or_, select

from orchestrator.errors import Fault, StoreError
from orchestrator.ledger import chain
from orchestrator.ledger.chain import ChainBreak
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.sql.database import Database
from orchestrator.ledger.sql.engine import DAMAGE_ADVICE
from orchestrator.ledger.sql.schema import events, is_retry, sweeps

PAGE_ROWS = 5000
"""Number of events read in one transaction; long reads would delay checkpoints of SQLite's WAL."""
MAX_FAULTS = 100
"""Maximum number of faults that are listed individually."""
_COLUMNS = [events.c[name] for name in (*chain.CHAINED_COLUMNS, "digest")]

Rows = Sequence[Sequence[Any]]


class LedgerReader:
    """Verified access to the rows of one sweep."""

    def __init__(self, database: Database, name: str, sweep_id: int) -> None:
        self._database = database
        self._name = name
        self._id = sweep_id
        self._is_in_sweep = events.c.sweep_id == sweep_id
        self._location = database.engine.url.render_as_string(hide_password=True)

    def read_sweep(self, connection: Connection, *, lock: bool = False) -> Mapping[str, Any]:
        """Return the row of the sweep; if `lock` is True, no other process can change it in this transaction.

        Raises:
            StoreError: If the row is missing or changed.
        """
        row = self._read_sweep_row(connection, lock=lock)
        if row is None or not chain.is_sealed(row):
            raise self._damage_error(_row_break(self._name, row))
        return row

    def has_event(self, connection: Connection, seq: int, digest: str) -> bool:
        """Return whether the event at position `seq` has this digest."""
        query = select(events.c.digest).where(self._is_in_sweep, events.c.seq == seq)
        return bool(connection.scalar(query) == digest)

    def rows(self, after_seq: int) -> Iterator[Sequence[Any]]:
        """Yield the rows of events after position `after_seq`.

        Raises:
            StoreError: If an event was changed; raised at the first such event.
        """
        for rows, chain_breaks in self._pages(after_seq):
            for chain_break in chain_breaks:
                raise self._damage_error(chain_break)
            yield from rows

    def newest_rows(
        self, *, after_seq: int, first_seqs: Mapping[str, int], every_report: bool
    ) -> list[Sequence[Any]]:
        """Return the rows that records need, oldest first, with only the last measurement of each trial.

        For retried trials, all measurements and checkpoints are returned. A retry continues from a
        checkpoint, and measurements after the step of that checkpoint do not count. Each row is verified
        against the digest of the row before it. Missing rows are not detected.

        Args:
            after_seq: Position up to which rows are omitted, except for trials in `first_seqs`.
            first_seqs: Trials with earlier rows to return, with the positions of their first events.
            every_report: Whether to return all measurements of all trials instead of the last ones.

        Raises:
            StoreError: If a row was changed; raised at the first such row.
        """
        query = self._newest_query(after_seq, first_seqs, every_report=every_report)

        def read(connection: Connection) -> tuple[str, Rows]:
            return str(self.read_sweep(connection)["uid"]), connection.execute(query).all()

        uid, rows = self._database.run(read, write=False)
        for *row, previous_digest in rows:
            previous = previous_digest or chain.first_digest(uid)
            for chain_break in chain.find_breaks(previous, row[0] - 1, [row]):
                raise self._damage_error(chain_break)
        return [row[:-1] for row in rows]

    def _newest_query(
        self, after_seq: int, first_seqs: Mapping[str, int], *, every_report: bool
    ) -> Select[Any]:
        first_needed_seq = min([after_seq, *(seq - 1 for seq in first_seqs.values())])
        is_selected, is_measured = (
            and_(self._is_in_sweep, events.c.seq > first_needed_seq),
            events.c.step.is_not(None),
        )
        if first_seqs:
            is_selected = and_(is_selected, or_(events.c.seq > after_seq, events.c.trial_id.in_(first_seqs)))
        last_measurements = (
            select(events.c.trial_id, func.max(events.c.step).label("step"))
            .where(is_selected, is_measured)
            .group_by(events.c.trial_id)
            .subquery()
        )
        earlier_events = events.alias()
        is_retried = events.c.trial_id.in_(select(events.c.trial_id).where(self._is_in_sweep, is_retry()))
        omitted_kinds = (EventKind.CHECKPOINTED.value, EventKind.EXAMPLES.value)
        is_other_event = and_(events.c.step.is_(None), events.c.kind.not_in(omitted_kinds))
        conditions = [is_other_event, last_measurements.c.step.is_not(None), is_retried]
        return (
            select(*_COLUMNS, earlier_events.c.digest)
            .outerjoin(
                last_measurements,
                and_(
                    events.c.trial_id == last_measurements.c.trial_id,
                    events.c.step == last_measurements.c.step,
                ),
            )
            .outerjoin(
                earlier_events,
                and_(earlier_events.c.sweep_id == self._id, earlier_events.c.seq == events.c.seq - 1),
            )
            .where(is_selected, or_(*conditions, *([is_measured] if every_report else [])))
            .order_by(events.c.seq)
        )

    def faults(self) -> list[Fault]:
        """Return the faults of the ledger, at most `MAX_FAULTS`."""
        chain_breaks: list[ChainBreak] = []
        try:
            chain_breaks.extend(islice(self._all_breaks(), MAX_FAULTS))
            chain_breaks.extend(self._database.run(_integrity_faults, write=False))
        except StoreError as error:
            return [*map(self._fault, chain_breaks), Fault(str(error))]
        return [self._fault(chain_break) for chain_break in chain_breaks[:MAX_FAULTS]]

    def _all_breaks(self) -> Iterator[ChainBreak]:
        row = self._database.run(self._read_sweep_row, write=False)
        if row is None or not chain.is_sealed(row):
            yield _row_break(self._name, row)
            return
        for _, chain_breaks in self._pages(0):
            yield from chain_breaks

    def _pages(self, after_seq: int) -> Iterator[tuple[Rows, Iterator[ChainBreak]]]:
        """Yield the events after position `after_seq` in pages, each with its faults.

        The faults are computed on demand. Those of the last page include a fault at the end of the chain.
        """
        previous_digest: str | None = None
        is_last = False
        while not is_last:
            sweep, previous_digest, rows = self._page(after_seq, previous_digest)
            chain_breaks = chain.find_breaks(previous_digest, after_seq, rows)
            if rows:
                after_seq, previous_digest = rows[-1][0], rows[-1][-1]
            if is_last := len(rows) < PAGE_ROWS:
                end_breaks = chain.find_end_breaks(previous_digest, after_seq, sweep)
                chain_breaks = concatenate(chain_breaks, end_breaks)
            yield rows, chain_breaks

    def _page(self, after_seq: int, previous_digest: str | None) -> tuple[Mapping[str, Any], str, Rows]:
        """Return the row of the sweep, the digest of the event before the page, and the events of the page.

        One transaction reads all three.
        """

        def read(connection: Connection) -> tuple[Mapping[str, Any], str, Rows]:
            sweep = self.read_sweep(connection)
            digest = previous_digest
            if digest is None:
                digest = self._digest_at(connection, after_seq, sweep["uid"])
            query = select(*_COLUMNS).where(self._is_in_sweep, events.c.seq > after_seq)
            rows = connection.execute(query.order_by(events.c.seq).limit(PAGE_ROWS)).all()
            return sweep, digest, rows

        return self._database.run(read, write=False)

    def _digest_at(self, connection: Connection, seq: int, uid: str) -> str:
        query = (
            select(events.c.digest)
            .where(self._is_in_sweep, events.c.seq <= seq)
            .order_by(events.c.seq.desc())
        )
        digest = connection.scalar(query.limit(1)) if seq else None
        return str(digest) if digest is not None else chain.first_digest(uid)

    def _read_sweep_row(self, connection: Connection, *, lock: bool = False) -> Mapping[str, Any] | None:
        query = select(sweeps).where(sweeps.c.id == self._id)
        row = connection.execute(query.with_for_update() if lock else query).mappings().all()
        return dict(row[0]) if len(row) == 1 else None

    def _damage_error(self, chain_break: ChainBreak) -> StoreError:
        return StoreError(
            f"the ledger at {self._location} must have the content that haltsweep wrote: "
            f"{chain_break.place} {chain_break.what}; {DAMAGE_ADVICE}"
        )

    def _fault(self, chain_break: ChainBreak) -> Fault:
        return Fault(chain_break.what, path=chain_break.place, file=self._location)


def _row_break(name: str, row: Mapping[str, Any] | None) -> ChainBreak:
    fault = "is missing" if row is None else "differs from what haltsweep wrote"
    return ChainBreak(f"the row of sweep {name!r}", fault)


def _integrity_faults(connection: Connection) -> list[ChainBreak]:
    """Return the faults that SQLite's integrity check finds, for example in indexes."""
    if connection.dialect.name != "sqlite":
        return []
    lines = [str(line) for (line,) in connection.exec_driver_sql(f"PRAGMA integrity_check({MAX_FAULTS})")]
    return [ChainBreak("the file", line) for line in lines if line != "ok"]
