"""A ledger in memory, and a recorder on it: as strict as the real one, and fast enough for thousands."""

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
    """What a log says of one trial, without times and attempts."""

    asked: Mapping[str, Any]
    measured: list[Mapping[str, Any]] = field(default_factory=list)
    ended: Mapping[str, Any] | None = None


def content(events: Iterable[Event]) -> dict[str, History]:
    """The deterministic part of a log: one history a trial, in the order of asking."""
    found: dict[str, History] = {}
    for event in events:
        if event.kind is EventKind.ASKED:
            found[event.trial_id or ""] = History(event.payload)
        elif event.kind is EventKind.MEASURED:
            found[event.trial_id or ""].measured.append(event.payload)
        elif event.kind is EventKind.ENDED:
            found[event.trial_id or ""].ended = event.payload
    return found


class MemoryLog:
    """Keeps events in a list; refuses what the ledger refuses."""

    def __init__(self, written: Sequence[Event] = ()) -> None:
        self.written = list(written)
        self.batches: list[int] = []
        """Length of the log after each append: where a crash can leave it."""
        self.token = 0
        self.kept: LedgerSnapshot | None = None

    def snapshot(self) -> LedgerSnapshot | None:
        return self.kept

    def save_snapshot(self, new: LedgerSnapshot, lease: Lease) -> None:
        assert lease.token == self.token, "only the holder saves"
        assert new.seq == len(self.written), "a snapshot must end at the newest event"
        self.kept = new

    def claim(self) -> Lease:
        """Everybody gets the lease; the one before has lost it."""
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
        """Events of one kind, perhaps of one trial."""
        return [each for each in self.written if each.kind is kind and trial_id in {None, each.trial_id}]

    def outcomes(self) -> dict[str, OutcomeKind]:
        """How every trial ended for good."""
        found: dict[str, OutcomeKind] = {}
        for each in self.written:
            if each.kind is EventKind.RETRIED:
                found.pop(each.trial_id or "", None)
            elif each.kind is EventKind.ENDED and (kind := OutcomeKind(each.payload["kind"])).final:
                found[each.trial_id or ""] = kind
        return found

    def _check(self, event: Event) -> None:
        if event.trial_id is None:
            return
        if event.kind is EventKind.RETRIED:
            assert event.trial_id in self.outcomes(), f"{event.trial_id} must have ended"
            return
        assert event.trial_id not in self.outcomes(), f"nothing may follow the end of {event.trial_id}"
        if event.kind is EventKind.MEASURED:
            retried = max((each.seq or 0 for each in self.of(EventKind.RETRIED, event.trial_id)), default=0)
            measured = self.of(EventKind.MEASURED, event.trial_id)
            steps = [each.payload["step"] for each in measured if (each.seq or 0) > retried]
            assert event.payload["step"] not in steps, "a step is measured once"


def record(
    plan: Plan,
    log: MemoryLog,
    *,
    clock: "Clock | None" = None,
    root: Path | None = None,
    snapshot_every: int | None = None,
) -> Recorder:
    """A new session on `log`; with `snapshot_every` it keeps snapshots after so many events."""
    folder = SweepFolder(root) if root else NOWHERE
    more = {} if snapshot_every is None else {"snapshots": log, "snapshot_every": snapshot_every}
    return Recorder(plan, log, log.claim(), folder, clock=clock or Clock(), **more)


class Clock:
    """Time that passes when told to."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
