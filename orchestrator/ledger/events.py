"""The kinds of events, and how each is made. What came of them is read in `fold.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from orchestrator.files.json_values import from_json_values, to_json_values
from orchestrator.ledger.lease import Holder
from orchestrator.trials import DeathCause, Outcome, PlannedTrial, Trial
from trainables.protocol import Measurement

PLANNED = frozenset(field.name for field in fields(PlannedTrial))
"""Fields of a planned trial, which stand beside those of the trial in an `asked` event."""
BUDGET = "budget"
"""Reason of a sweep that was closed because it may start nothing more."""
ERROR = "error"
"""Reason of a release: the first trials of an arm crashed with the same error."""


class EventKind(StrEnum):
    """Everything that can happen to a sweep."""

    OPENED = "opened"
    """A process took the sweep. Payload: holder, spec_digest, provenance."""
    ASKED = "asked"
    """A trial got its assignment. Payload: the trial as JSON."""
    STARTED = "started"
    """An attempt at a trial began under a fencing token. Payload: token."""
    MEASURED = "measured"
    """Payload: step, seconds, metrics. At most one a trial and step."""
    KEPT = "kept"
    """What single examples showed at the step measured just before. Payload: step, examples."""
    CHECKPOINTED = "checkpointed"
    """Payload: step, path relative to the sweep's folder."""
    ATTRIBUTES = "attributes"
    """Texts that a trial reported, by name. The newest text of a name counts."""
    ENDED = "ended"
    """Payload: kind, reason, lost (true if a worker died), outside (true if it died by no fault of the
    trial), saved (step of the checkpoint kept for a retry).

    After a final one only `retried` may follow.
    """
    RETRIED = "retried"
    """A trial that had ended will run again.

    Payload: step of the checkpoint from which the trial resumes (-1: from scratch); later measurements no
    longer count. Or cause: id of the retried trial, if this trial had been skipped because of its failure.
    """
    READ = "read"
    """The data that trials of this process read are there. Payload: digests of splits by task/split."""
    CLOSED = "closed"
    """The process released the sweep. Payload: reason (done, interrupted, budget, error); with a budget or
    an error, why; with a budget, extensions (how often the sweep had been extended)."""


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the log."""

    kind: EventKind
    at: float
    """Unix time in seconds."""
    trial_id: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    seq: int | None = None
    """Position in the log; given by the ledger. Increasing; numbers may be missing."""


def opened(at: float, holder: Holder, spec_digest: str, provenance: Mapping[str, Any]) -> Event:
    """A process took the sweep."""
    payload = {"holder": to_json_values(holder), "spec_digest": spec_digest, "provenance": dict(provenance)}
    return Event(EventKind.OPENED, at, payload=payload)


def asked(at: float, trial: Trial) -> Event:
    """A trial got its assignment."""
    return Event(EventKind.ASKED, at, trial.trial_id, trial_to_json(trial))


def started(at: float, trial_id: str, token: int) -> Event:
    """An attempt at a trial began under a fencing token."""
    return Event(EventKind.STARTED, at, trial_id, {"token": token})


def measured(at: float, trial_id: str, measurement: Measurement) -> Event:
    """A trial reported; a second event for the same trial and step is ignored by the ledger."""
    payload = {
        "step": measurement.step,
        "seconds": measurement.seconds,
        "metrics": dict(measurement.metrics),
    }
    return Event(EventKind.MEASURED, at, trial_id, payload)


def kept(at: float, trial_id: str, measurement: Measurement) -> Event:
    """A trial looked at single examples when it made this measurement."""
    payload = {"step": measurement.step, "examples": [dict(each) for each in measurement.examples]}
    return Event(EventKind.KEPT, at, trial_id, payload)


def checkpointed(at: float, trial_id: str, step: int, path: str) -> Event:
    """A checkpoint is complete on disk; `path` is relative to the sweep's folder."""
    return Event(EventKind.CHECKPOINTED, at, trial_id, {"step": step, "path": path})


def attributes(at: float, trial_id: str, texts: Mapping[str, str]) -> Event:
    """Create the event that a trial reported texts."""
    return Event(EventKind.ATTRIBUTES, at, trial_id, dict(texts))


def ended(
    at: float, trial_id: str, outcome: Outcome, *, lost: DeathCause | None = None, saved: int | None = None
) -> Event:
    """Create the event that a trial ended. Afterwards only a retry is accepted, unless the trial was stopped.

    Args:
        at: Unix time in seconds.
        trial_id: Id of the trial.
        outcome: Outcome of the trial.
        lost: Why its worker died; None if it did not.
        saved: Step of the checkpoint that is kept for a retry, if any.
    """
    payload: dict[str, Any] = {"kind": outcome.kind.value, "reason": outcome.reason}
    if lost is not None:
        payload["lost"] = True
    if lost is DeathCause.OUTSIDE:
        payload["outside"] = True
    if saved is not None:
        payload["saved"] = saved
    return Event(EventKind.ENDED, at, trial_id, payload)


def retried(at: float, trial_id: str, step: int) -> Event:
    """Create the event that a failed trial runs again from its checkpoint of `step`; -1: from scratch."""
    return Event(EventKind.RETRIED, at, trial_id, {"step": step})


def reopened(at: float, trial_id: str, cause: str) -> Event:
    """Create the event that a skipped trial may run after all, since the trial `cause` is retried."""
    return Event(EventKind.RETRIED, at, trial_id, {"cause": cause})


def read(at: float, digests: Mapping[str, str]) -> Event:
    """All data are built: digests of splits by task/split."""
    return Event(EventKind.READ, at, payload=dict(digests))


def closed(at: float, reason: str, why: str = "", *, extensions: int | None = None) -> Event:
    """Create the event that the process released the sweep.

    Args:
        at: Unix time in seconds.
        reason: `done`, `interrupted`, `budget` or `error`.
        why: What is used up, or the error.
        extensions: How often the sweep had been extended, if its budget is used up.
    """
    payload: dict[str, Any] = {"reason": reason} | ({"why": why} if why else {})
    return Event(
        EventKind.CLOSED, at, payload=payload | ({} if extensions is None else {"extensions": extensions})
    )


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """JSON values, those of `planned` beside the others; `trial_from_json` gives an equal trial."""
    values: dict[str, Any] = to_json_values(trial)
    planned: dict[str, Any] = values.pop("planned")
    later = [(planned, name) for name in ("late_splits", "repeat", "settings_of")]
    for part, name in [*later, (values, "halting_examples")]:
        if not part[name]:  # it came later: other events are what they were
            del part[name]
    return planned | values


def trial_from_json(payload: Mapping[str, Any]) -> Trial:
    """The trial of an `asked` event. Raises ValueError for anything else."""
    planned = {name: payload[name] for name in PLANNED if name in payload}
    rest = {name: value for name, value in payload.items() if name not in PLANNED}
    return from_json_values(Trial, {**rest, "planned": planned})
