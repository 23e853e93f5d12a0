"""The conductor with the ledger underneath: whatever a driver is told has been written before."""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from orchestrator.conductor.budget import HeldOpen
from orchestrator.conductor.conductor import Conductor
from orchestrator.conductor.messages import Continue, Progress, Reply, Stop, Verdict
from orchestrator.identity import SweepFolder, checkpoint_name
from orchestrator.ledger import events as log
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.lease import Lease
from orchestrator.plan.types import Plan
from orchestrator.trials import Outcome, OutcomeKind, Trial
from trainables.protocol import Job, Measurement


class EventLog(Protocol):
    """What the recorder needs of a ledger."""

    def append(self, new: Sequence[Event], lease: Lease) -> None:
        """Write all or nothing."""

    def events(self, after: int = 0) -> Iterable[Event]:
        """Everything written, oldest first."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a trial by one worker."""

    trial: Trial
    token: int
    """Fencing token: the first attempt has 1, and only the newest may write."""
    checkpoints: Path
    """Folder that holds the trial's checkpoints."""
    source: Path | None
    """`posthoc`: folder that holds the checkpoints of the confirmed trial."""

    @property
    def trial_id(self) -> str:
        """Id of the trial."""
        return self.trial.trial_id

    def job(self, data_dir: Path) -> Job:
        """What the workload is built with."""
        planned = self.trial.planned
        return Job(self.trial.settings, planned.seed, planned.phase, self.trial.splits, data_dir, self.source)


@dataclass(slots=True)
class _Entry:
    """What the ledger says of one trial."""

    phase: str
    token: int = 0
    losses: int = 0
    step: int = -1
    """Newest step measured."""
    ended: OutcomeKind | None = None


class Recorder:
    """Opens the sweep of `plan` on its ledger and goes on where the last session ended.

    Not safe for threads: one driver calls it. After an exception of the ledger (LeaseLost, StoreError) it is
    not to be used.
    """

    def __init__(
        self,
        plan: Plan,
        ledger: EventLog,
        lease: Lease,
        folder: SweepFolder,
        *,
        provenance: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan
        self._ledger = ledger
        self._lease = lease
        self._folder = folder
        self._clock = clock
        self._conductor = Conductor(plan)
        self._entries: dict[str, _Entry] = {}
        self._held = HeldOpen()
        self._draining = ""
        self._why = "interrupted"
        self._closed = False
        self._together: tuple[list[Event], list[str]] | None = None
        for event in ledger.events():
            self._conductor.replay(event)
            self._note(event)
        self._write([log.opened(clock(), lease.holder, plan.spec_digest, provenance or {})])
        self._finish_what_was_decided()
        self._tidy(self._entries)

    @property
    def finished(self) -> bool:
        """Whether every planned trial has ended."""
        return self._conductor.finished

    @property
    def draining(self) -> str:
        """Why nothing new is handed out; empty while something is."""
        return self._draining

    def progress(self) -> tuple[Progress, ...]:
        """How far every arm is, in the order of the plan."""
        return self._conductor.progress()

    def held_open_s(self) -> float:
        """Seconds the sweep was held open so far, over all sessions."""
        return self._held.seconds(self._clock())

    def ask(self) -> Attempt | None:
        """The next trial to run, written as started; None while there is nothing to hand out."""
        self._check_budget()
        trial = self._conductor.ask()
        new = self._doomed()
        if trial is None:
            self._write(new)
            return None
        now = self._clock()
        entry = self._entries.get(trial.trial_id)
        if entry is None:
            new.append(log.asked(now, trial))
        token = entry.token + 1 if entry else 1
        self._write([*new, log.started(now, trial.trial_id, token)])
        source = self._folder.checkpoint(trial.source_id) if trial.source_id else None
        return Attempt(trial, token, self._folder.checkpoint(trial.trial_id), source)

    @contextmanager
    def together(self) -> Iterator[None]:
        """All that is recorded inside is one transaction, written on leaving: act on no verdict before."""
        assert self._together is None, "what is recorded together is not nested"
        new: list[Event] = []
        ended: list[str] = []
        self._together = new, ended
        yield
        self._together = None
        if new:
            self._ledger.append(new, self._lease)
        self._tidy(ended)

    def take(self, trial_id: str, token: int, reply: Reply) -> Verdict:
        """Record all that one step of a worker brought, in one transaction; what the worker shall do next.

        A step that is recorded already is dropped: the first writer wins. A worker whose attempt was
        superseded, or whose trial has ended, is told to stop and nothing of it is written. Once a stop is
        decided, all that counts is that the worker has let go, however late it hears of it: slow drivers and
        fast ones record the same.
        """
        entry = self._entries[trial_id]
        if entry.ended is not None or token != entry.token:
            return Stop(OutcomeKind.STOPPED, f"attempt {token} was superseded by attempt {entry.token}")
        self._check_budget()
        standing = self._conductor.standing(trial_id)
        if standing is not None:
            reply = Reply(ended=standing.outcome if reply.ended is not None else None)
        now = self._clock()
        new: list[Event] = []
        verdict: Verdict = standing or Continue()
        if reply.measurement is not None and reply.measurement.step > entry.step:
            verdict = self._conductor.hear(trial_id, reply.measurement)
            new.append(log.measured(now, trial_id, reply.measurement))
        if reply.checkpoint is not None:
            path = self._folder.checkpoint(trial_id) / checkpoint_name(reply.checkpoint)
            new.append(
                log.checkpointed(now, trial_id, reply.checkpoint, str(path.relative_to(self._folder.root)))
            )
        if reply.ended is not None:
            new.append(self._end(trial_id, self._conductor.settle(trial_id, reply.ended)))
        self._write([*new, *self._doomed()])
        if reply.ended is not None:
            self._tidy([trial_id])
        if self._draining and isinstance(verdict, Continue):
            return Stop(OutcomeKind.STOPPED, self._draining)
        return verdict

    def hear(self, trial_id: str, token: int, measurement: Measurement) -> Verdict:
        """`take` of a measurement alone."""
        return self.take(trial_id, token, Reply(measurement=measurement))

    def checkpointed(self, trial_id: str, token: int, step: int) -> Verdict:
        """`take` of a checkpoint alone."""
        return self.take(trial_id, token, Reply(checkpoint=step))

    def tell(self, trial_id: str, token: int, outcome: Outcome) -> None:
        """`take` of an end alone."""
        self.take(trial_id, token, Reply(ended=outcome))

    def lost(self, trial_id: str, reason: str) -> Outcome:
        """The worker of a trial died: it starts again from its last checkpoint, unless it died too often."""
        entry = self._entries[trial_id]
        if not self._conductor.running(trial_id):
            kind = entry.ended or OutcomeKind.STOPPED
            return Outcome(kind, "the trial had let go of its worker before that was lost")
        losses, retries = entry.losses + 1, self._plan.resources.retries
        told = f"worker died, time {losses} of at most {retries + 1}: {reason}"
        standing = self._conductor.standing(trial_id)
        kind = OutcomeKind.CRASHED if losses > retries else OutcomeKind.STOPPED
        outcome = standing.outcome if standing is not None else Outcome(kind, told)
        self._write([self._end(trial_id, outcome, lost=True), *self._doomed()])
        self._tidy([trial_id])
        return outcome

    def drain(self, reason: str) -> None:
        """Hand out nothing more, and stop running trials at their next report; `resume` continues them."""
        self._draining = self._draining or reason
        self._conductor.refuse_new(reason)

    def close(self, reason: str | None = None) -> None:
        """Let go of the sweep: `done`, `budget` or `interrupted`, found out unless given."""
        if not self._closed:
            self._write([log.closed(self._clock(), reason or ("done" if self.finished else self._why))])
            self._closed = True

    def _check_budget(self) -> None:
        hours = self._plan.wall_clock_hours
        if hours is not None and not self._draining and self.held_open_s() >= hours * 3600:
            self._why = "budget"
            self.drain(f"the budget of {hours:g} hours of wall clock is used up; raise it and resume")

    def _end(self, trial_id: str, outcome: Outcome, *, lost: bool = False) -> Event:
        self._conductor.tell(trial_id, outcome)
        return log.ended(self._clock(), trial_id, outcome, lost=lost)

    def _doomed(self) -> list[Event]:
        now = self._clock()
        return [
            event
            for trial, outcome in self._conductor.take_doomed()
            for event in (log.asked(now, trial), log.ended(now, trial.trial_id, outcome))
        ]

    def _finish_what_was_decided(self) -> None:
        """Write the stops, and the trials doomed by them, that the last session decided and did not write."""
        new = [self._end(trial_id, stop.outcome) for trial_id, stop in self._conductor.undone()]
        self._write([*new, *self._doomed()])

    def _write(self, new: Sequence[Event]) -> None:
        if self._together is not None:
            self._together[0].extend(new)
        elif new:
            self._ledger.append(new, self._lease)
        for event in new:
            self._note(event)

    def _note(self, event: Event) -> None:
        self._held.saw(event)
        if event.trial_id is None:
            return
        if event.kind is EventKind.ASKED:
            self._entries[event.trial_id] = _Entry(event.payload["phase"])
            return
        entry = self._entries[event.trial_id]
        if event.kind is EventKind.STARTED:
            entry.token = event.payload["token"]
        elif event.kind is EventKind.MEASURED:
            entry.step = event.payload["step"]
        elif event.kind is EventKind.ENDED:
            kind = OutcomeKind(event.payload["kind"])
            entry.ended = kind if kind.final else None
            entry.losses += bool(event.payload.get("lost"))

    def _tidy(self, trial_ids: Iterable[str]) -> None:
        """Delete checkpoints nobody will read again: those of ended trials, unless they were confirmed."""
        if self._together is not None:
            self._together[1].extend(trial_ids)
            return
        for trial_id in trial_ids:
            entry = self._entries[trial_id]
            confirmed = entry.phase == "confirm" and entry.ended is OutcomeKind.FINISHED
            if entry.ended is not None and not confirmed:
                shutil.rmtree(self._folder.checkpoint(trial_id), ignore_errors=True)
