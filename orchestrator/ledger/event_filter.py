"""Filter and validate events before they are written to the ledger."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select, union_all

from orchestrator.errors import StoreError
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.sql.schema import events, is_retry

Row = Mapping[str, Any]


class EventAfterEndError(StoreError):
    """Raised for an event of a trial that has already ended for good."""


def filter_new_events(connection: Connection, sweep_id: int, rows: Sequence[Row]) -> list[Row]:
    """Return `rows` without measurements of a trial and step that already has one.

    Measurements before a retry are ignored in this comparison.

    Raises:
        EventAfterEndError: For an event after a trial's final end, unless the event is a retry.
    """
    _refuse_ended_trials(connection, sweep_id, rows)
    return list(_new_rows(connection, sweep_id, rows))


def _refuse_ended_trials(connection: Connection, sweep_id: int, rows: Sequence[Row]) -> None:
    ids = {row["trial_id"] for row in rows} - {None}
    trial_events = select(events.c.trial_id, events.c.outcome, events.c.seq).where(
        events.c.sweep_id == sweep_id, events.c.trial_id.in_(ids)
    )
    # Each condition has an index. For a disjunction, or to sort by position, SQLite would read all events.
    query = union_all(trial_events.where(events.c.outcome.is_not(None)), trial_events.where(is_retry()))
    ends_and_retries = sorted(connection.execute(query), key=lambda row: row.seq) if ids else []
    newest_outcomes = {row.trial_id: row.outcome for row in ends_and_retries}
    outcomes_by_trial = {
        trial_id: outcome for trial_id, outcome in newest_outcomes.items() if outcome is not None
    }
    for row in rows:
        trial_id = row["trial_id"]
        if row["kind"] == EventKind.RETRIED.value:
            outcomes_by_trial.pop(trial_id, None)
        elif trial_id in outcomes_by_trial:
            raise EventAfterEndError(
                f"a trial must have no events after its end: {trial_id} is {outcomes_by_trial[trial_id]}, "
                f"got an event {row['kind']!r}; nothing was written"
            )
        if row["outcome"] is not None:
            outcomes_by_trial[trial_id] = row["outcome"]


def _new_rows(connection: Connection, sweep_id: int, rows: Sequence[Row]) -> Iterator[Row]:
    steps_by_trial: dict[str, list[int]] = {}
    for row in rows:
        if row["step"] is not None:
            steps_by_trial.setdefault(row["trial_id"], []).append(row["step"])
    known_steps: set[tuple[str, int]] = set()
    is_in_sweep = events.c.sweep_id == sweep_id
    last_retry = (
        select(events.c.trial_id, func.max(events.c.seq))
        .where(is_in_sweep, events.c.trial_id.in_(steps_by_trial), is_retry())
        .group_by(events.c.trial_id)
    )
    retry_seq_by_trial = {row[0]: row[1] for row in connection.execute(last_retry)} if steps_by_trial else {}
    for trial_id, steps in steps_by_trial.items():
        # The positions are compared here: a bound on them in the query makes SQLite read all events.
        query = select(events.c.step, events.c.seq).where(
            is_in_sweep, events.c.trial_id == trial_id, events.c.step.is_not(None), events.c.step.in_(steps)
        )
        retry_seq = retry_seq_by_trial.get(trial_id, 0)
        known_steps |= {(trial_id, step) for step, seq in connection.execute(query) if seq > retry_seq}
    for row in rows:
        key = row["trial_id"], row["step"]
        if row["kind"] == EventKind.RETRIED.value:
            known_steps = {entry for entry in known_steps if entry[0] != row["trial_id"]}
        if row["step"] is None:
            yield row
        elif key not in known_steps:
            known_steps.add(key)
            yield row
