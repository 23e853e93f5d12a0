"""Which of the events that somebody wants to write may be written."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from orchestrator.errors import StoreError
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.schema import events

Row = Mapping[str, Any]


class TrialEnded(StoreError):
    """A trial that ended for good was written to."""


def admitted(connection: Connection, sweep_id: int, rows: Sequence[Row]) -> list[Row]:
    """`rows` without the measurements that are there already: the first of a trial and step wins.

    Measurements before a retry are ignored. Raises TrialEnded for an event after a trial's final end, unless
    the event is a retry.
    """
    _refuse_ended(connection, sweep_id, rows)
    return list(_unknown(connection, sweep_id, rows))


def _refuse_ended(connection: Connection, sweep_id: int, rows: Sequence[Row]) -> None:
    ids = {row["trial_id"] for row in rows} - {None}
    query = (
        select(events.c.trial_id, events.c.outcome)
        .where(events.c.sweep_id == sweep_id, events.c.trial_id.in_(ids))
        .where(events.c.outcome.is_not(None) | (events.c.kind == EventKind.RETRIED.value))
        .order_by(events.c.seq)
    )
    newest = {row.trial_id: row.outcome for row in connection.execute(query)} if ids else {}
    ended = {trial_id: outcome for trial_id, outcome in newest.items() if outcome is not None}
    for row in rows:
        trial_id = row["trial_id"]
        if row["kind"] == EventKind.RETRIED.value:
            ended.pop(trial_id, None)
        elif trial_id in ended:
            raise TrialEnded(
                f"nothing may happen to a trial after its end: {trial_id} is {ended[trial_id]}, "
                f"got an event {row['kind']!r}; nothing was written"
            )
        if row["outcome"] is not None:
            ended[trial_id] = row["outcome"]


def _unknown(connection: Connection, sweep_id: int, rows: Sequence[Row]) -> Iterator[Row]:
    asked: dict[str, list[int]] = {}
    for row in rows:
        if row["step"] is not None:
            asked.setdefault(row["trial_id"], []).append(row["step"])
    known: set[tuple[str, int]] = set()
    for trial_id, steps in asked.items():
        of_trial = (events.c.sweep_id == sweep_id) & (events.c.trial_id == trial_id)
        retried = select(func.max(events.c.seq)).where(of_trial, events.c.kind == EventKind.RETRIED.value)
        query = select(events.c.step).where(
            of_trial, events.c.step.in_(steps), events.c.seq > func.coalesce(retried.scalar_subquery(), 0)
        )
        known |= {(trial_id, step) for step in connection.scalars(query)}
    for row in rows:
        key = row["trial_id"], row["step"]
        if row["kind"] == EventKind.RETRIED.value:
            known = {each for each in known if each[0] != row["trial_id"]}
        if row["step"] is None:
            yield row
        elif key not in known:
            known.add(key)
            yield row
