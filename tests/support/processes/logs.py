"""A ledger in memory and a recorder on it: as strict as the ledger on disk, and fast enough for thousands."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import LeaseLost
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.lease import Holder, Lease
from orchestrator.ledger.ledger_snapshot import LedgerSnapshot
from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind

HOLDER = Holder("here", 1, "boot", 0.0, 0.0)
NOWHERE = SweepFolder(Path("/nonexistent/sweep"))


@dataclass
class History:
    """Events of one trial, without times and attempts."""

    asked: Mapping[str, Any]
    measured: list[Mapping[str, Any]] = field(default_factory=list)
    ended: Mapping[str, Any] | None = None


def content(events: Iterable[Event]) -> dict[str, History]:
    """Return the deterministic part of a log: one history a trial, in the order of their starts."""
    histories: dict[str, History] = {}
    for event in events:
        if event.kind is EventKind.PARAMS_ASSIGNED:
            histories[event.trial_id or ""] = History(event.payload)
        elif event.kind is EventKind.MEASURED:
            histories[event.trial_id or ""].measured.append(event.payload)
        elif event.kind is EventKind.ENDED:
            histories[event.trial_id or ""].ended = event.payload
    return histories


class MemoryLog:
    """Keeps events in a list, and refuses every event that the ledger on disk refuses."""

    def __init__(self, written: Sequence[Event] = ()) -> None:
        self.written = list(written)
        self.batches: list[int] = []
        """Length of the log after each append: a crash can leave the log at each of these lengths."""
        self.token = 0
        self.stored_snapshot: LedgerSnapshot | None = None

    def snapshot(self) -> LedgerSnapshot | None:
        return self.stored_snapshot

    def save_snapshot(self, new: LedgerSnapshot, lease: Lease) -> None:
        assert lease.token == self.token, "only the holder saves"
        assert new.seq == len(self.written), "a snapshot must end at the newest event"
        self.stored_snapshot = new

    def claim(self) -> Lease:
        """Return the lease; the previous holder loses it."""
        self.token += 1
        return Lease("synthetic", self.token, HOLDER, 0.0)

    def append(self, new: Sequence[Event], lease: Lease) -> None:
        if lease.token != self.token:
            raise LeaseLost(f"only token {self.token} may write, got {lease.token}")
        for event in new:
            self._check(event)
            self.written.append(replace(event, seq=len(self.written) + 1))
        self.batches.append(len(self.written))

    def events(self, after: int = 0) -> Iterable[Event]:
        return iter(self.written[after:])

    def of(self, kind: EventKind, trial_id: str | None = None) -> list[Event]:
        """Return the events of one kind, or those of one trial if its id is given."""
        return [event for event in self.written if event.kind is kind and trial_id in {None, event.trial_id}]

    def outcomes(self) -> dict[str, OutcomeKind]:
        """Return the final outcome of every trial that has ended."""
        outcomes: dict[str, OutcomeKind] = {}
        for event in self.written:
            if event.kind is EventKind.RETRIED:
                outcomes.pop(event.trial_id or "", None)
            elif event.kind is EventKind.ENDED and (kind := OutcomeKind(event.payload["kind"])).is_final:
                outcomes[event.trial_id or ""] = kind
        return outcomes

    def _check(self, event: Event) -> None:
        if event.trial_id is None:
            return
        if event.kind is EventKind.RETRIED:
            assert event.trial_id in self.outcomes(), f"{event.trial_id} must have ended"
            return
        assert event.trial_id not in self.outcomes(), f"nothing may follow the end of {event.trial_id}"
        if event.kind is EventKind.MEASURED:
            retried = max(
                (measured_event.seq or 0 for measured_event in self.of(EventKind.RETRIED, event.trial_id)),
                default=0,
            )
            measured_events = self.of(EventKind.MEASURED, event.trial_id)
            steps = [
                measured_event.payload["step"]
                for measured_event in measured_events
                if (measured_event.seq or 0) > retried
            ]
            assert event.payload["step"] not in steps, "a step is measured once"


def record(
    plan: Plan,
    log: MemoryLog,
    *,
    clock: "Clock | None" = None,
    root: Path | None = None,
    snapshot_every: int | None = None,
) -> Recorder:
    """Start a session on `log`; it stores a snapshot after every `snapshot_every` events."""
    folder = SweepFolder(root) if root else NOWHERE
    options = {} if snapshot_every is None else {"snapshots": log, "snapshot_every": snapshot_every}
    return Recorder(plan, log, log.claim(), folder, clock=clock or Clock(), **options)


class Clock:
    """A clock that stands still until a test advances it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
