"""Define the kinds of events and create events; `fold.py` computes records from events."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from orchestrator.files.json_values import from_json_values, to_json_values
from orchestrator.ledger.lease import Holder
from orchestrator.trials import DeathCause, Outcome, PlannedTrial, Trial
from trainables.protocol import Measurement

PLANNED_FIELDS = frozenset(field.name for field in fields(PlannedTrial))
"""Fields of a planned trial, stored next to the fields of the trial in an `asked` event."""
BUDGET_REASON = "budget"
"""Reason of a `closed` event: a budget is used up."""
ERROR_REASON = "error"
"""Reason of a `closed` event: the first trials of an arm crashed with the same error."""


class EventKind(StrEnum):
    """Kind of an event of a sweep."""

    OPENED = "opened"
    """A process claimed the sweep. Payload: holder, spec_digest, provenance."""
    PARAMS_ASSIGNED = "asked"
    """A trial received its assignment. Payload: the trial as JSON."""
    STARTED = "started"
    """An attempt at a trial began under a fencing token. Payload: token."""
    MEASURED = "measured"
    """A trial reported a measurement, at most one per trial and step. Payload: step, seconds, metrics."""
    EXAMPLES = "kept"
    """Values of single examples at the step of the preceding measurement. Payload: step, examples."""
    CHECKPOINTED = "checkpointed"
    """A checkpoint was written. Payload: step, path relative to the sweep's folder."""
    ATTRIBUTES = "attributes"
    """A trial reported text attributes. Payload: texts by name. The newest text of a name counts."""
    ENDED = "ended"
    """An attempt at a trial ended. After a final end only `retried` may follow.

    Payload: kind, reason, lost (true if a worker died), outside (true if the trial did not cause the death),
    saved (step of the checkpoint retained for a retry).
    """
    RETRIED = "retried"
    """A trial that had ended will run again.

    Payload of a failed trial: step of the checkpoint from which the trial resumes (-1: from scratch).
    Measurements after that step no longer count. Payload of a trial that a failure had skipped: cause, the
    id of the retried trial.
    """
    DATA_BUILT = "read"
    """The data of the trials of this process are built. Payload: digests of splits by task/split."""
    CLOSED = "closed"
    """The process released the sweep.

    Payload: reason (done, interrupted, budget, error). With a budget or an error also why. With a budget also
    extensions (the number of times the sweep had been extended).
    """


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the log."""

    kind: EventKind
    at: float
    """Unix time in seconds."""
    trial_id: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    seq: int | None = None
    """Position in the log, assigned by the ledger; positions increase and may have gaps."""


def claim_event(time: float, holder: Holder, spec_digest: str, provenance: Mapping[str, Any]) -> Event:
    """Create the event that reports the claim of the sweep by a process."""
    payload = {"holder": to_json_values(holder), "spec_digest": spec_digest, "provenance": dict(provenance)}
    return Event(EventKind.OPENED, time, payload=payload)


def params_event(time: float, trial: Trial) -> Event:
    """Create the event that a trial received its assignment."""
    return Event(EventKind.PARAMS_ASSIGNED, time, trial.trial_id, trial_to_json(trial))


def start_event(time: float, trial_id: str, token: int) -> Event:
    """Create the event that an attempt at a trial began under a fencing token."""
    return Event(EventKind.STARTED, time, trial_id, {"token": token})


def measurement_event(time: float, trial_id: str, measurement: Measurement) -> Event:
    """Create the event of a measurement; the ledger ignores a second one for the same trial and step."""
    metrics = dict(measurement.metrics)
    payload = {"step": measurement.step, "seconds": measurement.seconds, "metrics": metrics}
    return Event(EventKind.MEASURED, time, trial_id, payload)


def examples_event(time: float, trial_id: str, measurement: Measurement) -> Event:
    """Create the event that stores the measurement's values of single examples."""
    payload = {"step": measurement.step, "examples": [dict(example) for example in measurement.examples]}
    return Event(EventKind.EXAMPLES, time, trial_id, payload)


def checkpoint_event(time: float, trial_id: str, step: int, path: str) -> Event:
    """Create the event that a checkpoint is complete; `path` is relative to the sweep's folder."""
    return Event(EventKind.CHECKPOINTED, time, trial_id, {"step": step, "path": path})


def attributes_event(time: float, trial_id: str, texts: Mapping[str, str]) -> Event:
    """Create the event that a trial reported text attributes."""
    return Event(EventKind.ATTRIBUTES, time, trial_id, dict(texts))


def end_event(
    time: float,
    trial_id: str,
    outcome: Outcome,
    *,
    death_cause: DeathCause | None = None,
    saved_step: int | None = None,
) -> Event:
    """Create the event that a trial ended.

    Afterwards the ledger accepts only a retry of the trial, unless the trial was stopped.

    Args:
        time: Unix time in seconds.
        trial_id: Id of the trial.
        outcome: Outcome of the trial.
        death_cause: Cause of death of the worker; None if it did not die.
        saved_step: Step of the checkpoint that is retained for a retry, if any.
    """
    payload: dict[str, Any] = {"kind": outcome.kind.value, "reason": outcome.reason}
    if death_cause is not None:
        payload["lost"] = True
    if death_cause is DeathCause.OUTSIDE:
        payload["outside"] = True
    if saved_step is not None:
        payload["saved"] = saved_step
    return Event(EventKind.ENDED, time, trial_id, payload)


def retry_event(time: float, trial_id: str, step: int) -> Event:
    """Create the event that a failed trial resumes from its checkpoint of `step`; -1: from scratch."""
    return Event(EventKind.RETRIED, time, trial_id, {"step": step})


def reopening_event(time: float, trial_id: str, cause: str) -> Event:
    """Create the event that a skipped trial may run because the trial `cause` is retried."""
    return Event(EventKind.RETRIED, time, trial_id, {"cause": cause})


def data_event(time: float, digests: Mapping[str, str]) -> Event:
    """Create the event that all data are built, with digests of splits by task/split."""
    return Event(EventKind.DATA_BUILT, time, payload=dict(digests))


def release_event(time: float, reason: str, detail: str = "", *, extensions: int | None = None) -> Event:
    """Create the event that the process released the sweep.

    Args:
        time: Unix time in seconds.
        reason: `done`, `interrupted`, `budget` or `error`.
        detail: The budget that is used up, or the error.
        extensions: Number of times the sweep had been extended, if its budget is used up.
    """
    payload: dict[str, Any] = {"reason": reason} | ({"why": detail} if detail else {})
    payload |= {} if extensions is None else {"extensions": extensions}
    return Event(EventKind.CLOSED, time, payload=payload)


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """Return the trial as JSON values; the fields of `planned` are at the top level."""
    values: dict[str, Any] = to_json_values(trial)
    planned: dict[str, Any] = values.pop("planned")
    optional_fields = [(planned, name) for name in ("late_splits", "repeat", "settings_of")]
    for part, name in [*optional_fields, (values, "halting_examples")]:
        if not part[name]:  # omitted if empty, so that events of older versions stay equal
            del part[name]
    return planned | values


def trial_from_json(payload: Mapping[str, Any]) -> Trial:
    """Return the trial of the payload of an `asked` event.

    Raises:
        ValueError: If the payload is not a trial.
    """
    planned = {name: payload[name] for name in PLANNED_FIELDS if name in payload}
    trial_fields = {name: value for name, value in payload.items() if name not in PLANNED_FIELDS}
    return from_json_values(Trial, {**trial_fields, "planned": planned})
