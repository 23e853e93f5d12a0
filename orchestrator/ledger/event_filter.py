"""Filters and validates events before they are written to the ledger."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select, union_all

from orchestrator.errors import StoreError
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.sql.schema import events, is_retry

Row = Mapping[str, Any]


class TrialEnded(StoreError):
    """An event was written for a trial that had already ended for good."""


def filter_new_events(connection: Connection, sweep_id: int, rows: Sequence[Row]) -> list[Row]:
    """Return `rows` without measurements of a trial and step that already has one.

    Measurements before a retry are ignored in this comparison.

    Raises:
        TrialEnded: For an event after a trial's final end, unless the event is a retry.
    """
    _refuse_ended(connection, sweep_id, rows)
    return list(_unknown_rows(connection, sweep_id, rows))


def _refuse_ended(connection: Connection, sweep_id: int, rows: Sequence[Row]) -> None:
    ids = {row["trial_id"] for row in rows} - {None}
    of_trials = select(events.c.trial_id, events.c.outcome, events.c.seq).where(
        events.c.sweep_id == sweep_id, events.c.trial_id.in_(ids)
    )
    # Each condition has an index. For a disjunction, or to sort by position, SQLite would read all events.
    query = union_all(of_trials.where(events.c.outcome.is_not(None)), of_trials.where(is_retry()))
    turns = sorted(connection.execute(query), key=lambda row: row.seq) if ids else []
    newest = {row.trial_id: row.outcome for row in turns}
    outcomes_by_trial = {trial_id: outcome for trial_id, outcome in newest.items() if outcome is not None}
    for row in rows:
        trial_id = row["trial_id"]
        if row["kind"] == EventKind.RETRIED.value:
            outcomes_by_trial.pop(trial_id, None)
        elif trial_id in outcomes_by_trial:
            raise TrialEnded(
                f"a trial must have no events after its end: {trial_id} is {outcomes_by_trial[trial_id]}, "
                f"got an event {row['kind']!r}; nothing was written"
            )
        if row["outcome"] is not None:
            outcomes_by_trial[trial_id] = row["outcome"]


def _unknown_rows(connection: Connection, sweep_id: int, rows: Sequence[Row]) -> Iterator[Row]:
    seqs_by_trial: dict[str, list[int]] = {}
    for row in rows:
        if row["step"] is not None:
            seqs_by_trial.setdefault(row["trial_id"], []).append(row["step"])
    known_events: set[tuple[str, int]] = set()
    is_own = events.c.sweep_id == sweep_id
    last_retry = (
        select(events.c.trial_id, func.max(events.c.seq))
        .where(is_own, events.c.trial_id.in_(seqs_by_trial), is_retry())
        .group_by(events.c.trial_id)
    )
    retried_at = {row[0]: row[1] for row in connection.execute(last_retry)} if seqs_by_trial else {}
    for trial_id, steps in seqs_by_trial.items():
        # The positions are compared here: a bound on them in the query makes SQLite read all events.
        query = select(events.c.step, events.c.seq).where(
            is_own, events.c.trial_id == trial_id, events.c.step.is_not(None), events.c.step.in_(steps)
        )
        since = retried_at.get(trial_id, 0)
        known_events |= {(trial_id, step) for step, seq in connection.execute(query) if seq > since}
    for row in rows:
        key = row["trial_id"], row["step"]
        if row["kind"] == EventKind.RETRIED.value:
            known_events = {entry for entry in known_events if entry[0] != row["trial_id"]}
        if row["step"] is None:
            yield row
        elif key not in known_events:
            known_events.add(key)
            yield row
