"""Reads the rows of one sweep and checks that they are as they were written."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, func, or_, select

from orchestrator.errors import Fault, StoreError
from orchestrator.ledger import chain
from orchestrator.ledger.chain import Break
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.sql.database import Database
from orchestrator.ledger.sql.engine import DAMAGED
from orchestrator.ledger.sql.schema import events, is_retry, sweeps

READ_ROWS = 5000
"""Events read in one transaction: long reads would keep SQLite's log from being folded back."""
MAX_FAULTS = 100
"""More are not named one by one."""
_COLUMNS = [events.c[name] for name in (*chain.CHAINED, "digest")]

Rows = Sequence[Sequence[Any]]


class Reader:
    """The rows of one sweep."""

    def __init__(self, database: Database, name: str, sweep_id: int) -> None:
        self._database = database
        self._name = name
        self._id = sweep_id
        self._mine = events.c.sweep_id == sweep_id
        self._where = database.engine.url.render_as_string(hide_password=True)

    def sweep(self, connection: Connection, *, lock: bool = False) -> Mapping[str, Any]:
        """The sweep's own row; `lock`: nobody changes it before the transaction's end. Raises StoreError."""
        row = self._row(connection, lock=lock)
        if row is None or not chain.sealed(row):
            raise self._damaged(_row_break(self._name, row))
        return row

    def holds(self, connection: Connection, seq: int, digest: str) -> bool:
        """Whether the event with this digest is at this position."""
        query = select(events.c.digest).where(self._mine, events.c.seq == seq)
        return bool(connection.scalar(query) == digest)

    def rows(self, after: int) -> Iterator[Sequence[Any]]:
        """Rows of events behind position `after`. Raises StoreError for the first that is not as written."""
        previous: str | None = None
        while True:
            sweep, previous, rows = self._page(after, previous)
            for each in chain.breaks(previous, after, rows):
                raise self._damaged(each)
            if rows:
                after, previous = rows[-1][0], rows[-1][-1]
            if len(rows) < READ_ROWS and (last := chain.ending(previous, after, sweep)) is not None:
                raise self._damaged(last)
            yield from rows
            if len(rows) < READ_ROWS:
                return

    def newest_rows(self, *, after: int, also: Mapping[str, int], every_report: bool) -> list[Sequence[Any]]:
        """Rows of all events that make records, of measurements the last of every trial, oldest first.

        Rows up to position `after` are returned only of the trials `also`, which have none before the
        positions given with them. All measurements and checkpoints of retried trials are read: the retry's
        first step decides which count.

        Each is checked against the digest of the row before it, so that a changed one shows; whether rows are
        missing between them is not looked at. Raises StoreError for the first that is not as written.
        """
        query = self._newest(after, also, every_report=every_report)

        def read(connection: Connection) -> tuple[str, Rows]:
            return str(self.sweep(connection)["uid"]), connection.execute(query).all()

        uid, rows = self._database.run(read, write=False)
        for *row, before in rows:
            for each in chain.breaks(before or chain.first(uid), row[0] - 1, [row]):
                raise self._damaged(each)
        return [row[:-1] for row in rows]

    def _newest(self, after: int, also: Mapping[str, int], *, every_report: bool) -> Select[Any]:
        since = min([after, *(asked - 1 for asked in also.values())])
        mine, measured = and_(self._mine, events.c.seq > since), events.c.step.is_not(None)
        if also:
            mine = and_(mine, or_(events.c.seq > after, events.c.trial_id.in_(also)))
        last = (
            select(events.c.trial_id, func.max(events.c.step).label("step"))
            .where(mine, measured)
            .group_by(events.c.trial_id)
            .subquery()
        )
        before = events.alias()
        again = events.c.trial_id.in_(select(events.c.trial_id).where(self._mine, is_retry()))
        unread = (EventKind.CHECKPOINTED.value, EventKind.KEPT.value)
        wanted = [
            and_(events.c.step.is_(None), events.c.kind.not_in(unread)),
            last.c.step.is_not(None),
            again,
        ]
        return (
            select(*_COLUMNS, before.c.digest)
            .outerjoin(last, and_(events.c.trial_id == last.c.trial_id, events.c.step == last.c.step))
            .outerjoin(before, and_(before.c.sweep_id == self._id, before.c.seq == events.c.seq - 1))
            .where(mine, or_(*wanted, *([measured] if every_report else [])))
            .order_by(events.c.seq)
        )

    def faults(self) -> list[Fault]:
        """All that is not as it was written, at most `MAX_FAULTS` of it."""
        found: list[Break] = []
        try:
            found.extend(self._all_breaks())
            found.extend(self._database.run(_integrity, write=False))
        except StoreError as error:
            return [*map(self._fault, found), Fault(str(error))]
        return [self._fault(each) for each in found[:MAX_FAULTS]]

    def _all_breaks(self) -> Iterator[Break]:
        row = self._database.run(self._row, write=False)
        if row is None or not chain.sealed(row):
            yield _row_break(self._name, row)
            return
        after, previous, reported = 0, None, 0
        while True:
            sweep, previous, rows = self._page(after, previous)
            for each in chain.breaks(previous, after, rows):
                reported += 1
                yield each
            if rows:
                after, previous = rows[-1][0], rows[-1][-1]
            if len(rows) < READ_ROWS or reported >= MAX_FAULTS:
                break
        last = chain.ending(previous, after, sweep)
        if last is not None and reported < MAX_FAULTS:
            yield last

    def _page(self, after: int, previous: str | None) -> tuple[Mapping[str, Any], str, Rows]:
        """The sweep's row, the digest before the first row, and rows, all of one moment."""

        def read(connection: Connection) -> tuple[Mapping[str, Any], str, Rows]:
            sweep = self.sweep(connection)
            before = previous if previous is not None else self._digest_at(connection, after, sweep["uid"])
            query = select(*_COLUMNS).where(self._mine, events.c.seq > after)
            rows = connection.execute(query.order_by(events.c.seq).limit(READ_ROWS)).all()
            return sweep, before, rows

        return self._database.run(read, write=False)

    def _digest_at(self, connection: Connection, at: int, uid: str) -> str:
        query = select(events.c.digest).where(self._mine, events.c.seq <= at).order_by(events.c.seq.desc())
        found = connection.scalar(query.limit(1)) if at else None
        return str(found) if found is not None else chain.first(uid)

    def _row(self, connection: Connection, *, lock: bool = False) -> Mapping[str, Any] | None:
        query = select(sweeps).where(sweeps.c.id == self._id)
        found = connection.execute(query.with_for_update() if lock else query).mappings().all()
        return dict(found[0]) if len(found) == 1 else None

    def _damaged(self, found: Break) -> StoreError:
        return StoreError(
            f"the ledger at {self._where} must be as it was written: {found.place} {found.what}; {DAMAGED}"
        )

    def _fault(self, found: Break) -> Fault:
        return Fault(found.what, path=found.place, file=self._where)


def _row_break(name: str, row: Mapping[str, Any] | None) -> Break:
    what = "is missing" if row is None else "is not as it was written"
    return Break(f"the row of sweep {name!r}", what)


def _integrity(connection: Connection) -> list[Break]:
    """What SQLite itself finds wrong: indexes that do not fit their tables, for one."""
    if connection.dialect.name != "sqlite":
        return []
    lines = [str(line) for (line,) in connection.exec_driver_sql(f"PRAGMA integrity_check({MAX_FAULTS})")]
    return [Break("the file", line) for line in lines if line != "ok"]
