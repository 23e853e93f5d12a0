"""The kinds of events, and how events become records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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
    CHECKPOINTED = "checkpointed"
    """Payload: step, path relative to the sweep's folder."""
    ENDED = "ended"
    """Payload: kind, reason. After a final one nothing more is accepted for the trial."""
    CLOSED = "closed"
    """The process let go of the sweep. Payload: reason (done, interrupted, budget)."""


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the log."""

    kind: EventKind
    at: float
    """Unix time in seconds."""
    trial_id: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    seq: int | None = None
    """Position in the log; given by the ledger."""
