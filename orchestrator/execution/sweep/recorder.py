"""The conductor with the ledger underneath: whatever a driver acts upon has been written before.

While the ledger's database is away, events wait to be written: trials that run go on, are heard and decided
about; nothing is started, stopped or deleted until all is written.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from orchestrator.conductor.attempts import Kills
from orchestrator.conductor.messages import Continue, Progress, Reply, Stop, TrialDecision
from orchestrator.conductor.outlook import Outlook
from orchestrator.errors import StoreError
from orchestrator.execution.checkpoints.checkpoint_index import Checkpoints, InSweepFolder
from orchestrator.execution.steady_clock import steady_clock
from orchestrator.execution.sweep.sweep_fold import SweepFold, made_for
from orchestrator.execution.trial.jobs import Attempt
from orchestrator.identity import SweepFolder, checkpoint_name
from orchestrator.ledger import events as log
from orchestrator.ledger.events import Event
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.ledger_snapshot import LedgerSnapshot
from orchestrator.ledger.writer import Writer
from orchestrator.plan.types import Plan
from orchestrator.trials import DeathCause, Outcome, OutcomeKind, Trial
from trainables.protocol import Measurement

RESUMABLE = frozenset({OutcomeKind.CRASHED, OutcomeKind.TIMED_OUT, OutcomeKind.OUT_OF_MEMORY})
"""Failures after which the trial's last checkpoint is kept, so that a retry can resume from it."""
PROMPT_S = 2.0
"""A ledger that takes longer is not waited for."""
SNAPSHOT_EVENTS = 20_000
"""Least number of events between two snapshots; about a second of reading."""
SNAPSHOT_SHARE = 0.25
"""Least share of the events before: a snapshot takes the longer, the more of them there are."""


class EventLog(Protocol):
    """What the recorder needs of a ledger."""

    def append(self, new: Sequence[Event], lease: Lease) -> None:
        """Write all or nothing."""

    def events(self, after: int = 0) -> Iterable[Event]:
        """Everything written, oldest first."""


class SnapshotLog(Protocol):
    """What the recorder needs of a ledger that keeps snapshots."""

    def snapshot(self) -> LedgerSnapshot | None:
        """Return the newest snapshot that fits the events."""

    def save_snapshot(self, new: LedgerSnapshot, lease: Lease) -> None:
        """Replace it, if `new` ends at the newest event."""


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
        checkpoints: Checkpoints | None = None,
        clock: Callable[[], float] | None = None,
        snapshots: SnapshotLog | None = None,
        snapshot_every: int = SNAPSHOT_EVENTS,
    ) -> None:
        # An early stopper judges by all reports before: a second conductor would double its work.
        has_stopper = plan.search is not None and plan.search.stopper is not None
        self._replays = snapshots is not None and not has_stopper
        self._snapshots = snapshots
        self._snapshot_every, self._lease = snapshot_every, lease
        self._made_for = made_for(plan) if self._snapshots is not None else ""
        # Budgets add up differences of these times, so they must not jump when the system's clock is set.
        self._clock = clock = clock or steady_clock()
        self._hours = plan.wall_clock_hours
        self._extensions = len(plan.extended)
        self._retries = plan.resources.retries
        self._goes_on = plan.continue_on_error
        self._writer = Writer(ledger, lease)
        self._folder = folder
        self._checkpoints = checkpoints or InSweepFolder(folder)
        self.on_failure: Callable[[str, Outcome], None] = lambda *_: None
        """Called of each trial that fails."""
        self._kills = Kills()
        self._draining = ""
        self._spent = ""
        self._error = ""
        self._closed = False
        self._together: list[Event] | None = None
        self._untidy: list[str] = []
        self._fold = self._restored(plan) or SweepFold(plan)
        self._snapshot_at = self._fold.seq
        for event in ledger.events(self._fold.seq):
            self._fold.hear(event)
        self._attempts, self._held = self._fold.attempts, self._fold.held
        # The conductor of the fold only replays what was written: a snapshot is never ahead of the ledger.
        self._conductor = self._fold.live() if self._replays else self._fold.conductor
        self._save_snapshot()
        self._write([log.opened(clock(), lease.holder, plan.spec_digest, provenance or {})])
        self._finish_what_was_decided()
        self._tidy(self._attempts)

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

    def outlook(self) -> Outlook:
        """What runs at this moment, and what is still to come."""
        found, now = self._conductor.outlook(), self._clock()
        running = (
            replace(each, silent_s=max(0.0, now - self._attempts[each.trial_id].heard_at))
            for each in found.running
        )
        return replace(found, running=tuple(running))

    def held_open_s(self) -> float:
        """Seconds the sweep was held open so far, over all sessions."""
        return self._held.seconds(self._clock())

    def written(self, timeout_s: float = 0.0) -> bool:
        """Whether all is written, at the latest after `timeout_s` seconds. Raises what the ledger raised."""
        if self._together is not None or not self._writer.settled(timeout_s):
            return False
        self._tidy_up()
        self._save_snapshot()
        return True

    def ask(self) -> Attempt | None:
        """The next trial to run, to be started once all is `written`; None if there is none to hand out."""
        self._check_budget()
        waiting = self._kills.waiting()
        trial = self._conductor.ask(waiting)
        new = self._unrunnable()
        if trial is not None:
            return self._started(trial, new)
        self._write(new)
        if waiting and not self._draining and not any(map(self._conductor.running, self._attempts)):
            return self._give_up(waiting)
        return None

    def _give_up(self, waiting: Mapping[str, str]) -> Attempt | None:
        """Stop the sweep, since all that is left are trials that are killed again and again."""
        if self._goes_on:
            for trial_id, reason in waiting.items():
                outcome = Outcome(OutcomeKind.CRASHED, reason)
                self._write([self._end(trial_id, outcome, saved=self._saved(trial_id)), *self._unrunnable()])
            return self.ask()
        self._error = next(iter(waiting.values()))
        self.drain(self._error)
        return None

    def _started(self, trial: Trial, new: list[Event]) -> Attempt:
        now = self._clock()
        attempts = self._attempts.get(trial.trial_id)
        if attempts is None:
            new.append(log.asked(now, trial))
        token = attempts.token + 1 if attempts else 1
        self._write([*new, log.started(now, trial.trial_id, token)])
        return Attempt(trial, token, self._folder.checkpoint(trial.trial_id), self._last_of(trial.source_id))

    def _last_of(self, trial_id: str | None) -> Path | None:
        """The last checkpoint of a trial that ran to its last step."""
        if trial_id is None:
            return None
        return self._folder.checkpoint(trial_id) / checkpoint_name(self._attempts[trial_id].step)

    def data_are_there(self, digests: Mapping[str, str]) -> None:
        """Write what is in the data, by task/split, before any trial reads them."""
        if digests:
            self._write([log.read(self._clock(), digests)])

    @contextmanager
    def together(self) -> Iterator[None]:
        """All that is recorded inside is one transaction: act on no decision before it is written."""
        assert self._together is None, "what is recorded together is not nested"
        new = self._together = []
        try:
            yield
        finally:
            self._together = None
        self._send(new)
        self.written()

    def take(self, trial_id: str, token: int, reply: Reply) -> TrialDecision:
        """Record all that one step of a worker brought, in one transaction; what the worker shall do next.

        A step that is recorded already is dropped: the first writer wins. A worker whose attempt was
        superseded, or whose trial has ended, is asked to stop and nothing of it is written. Once a stop is
        decided, all that counts is that the worker has let go, however late it hears of it: slow drivers and
        fast ones record the same. A stop that is not written yet is answered at a later report.
        """
        attempts = self._attempts[trial_id]
        if attempts.ended is not None or token != attempts.token:
            return Stop(OutcomeKind.STOPPED, f"attempt {token} was superseded by attempt {attempts.token}")
        self._check_budget()
        standing = self._conductor.standing(trial_id)
        if standing is not None:
            reply = Reply(ended=standing.outcome if reply.ended is not None else None)
        now = self._clock()
        new: list[Event] = []
        decision: TrialDecision = standing or Continue()
        if reply.measurement is not None and reply.measurement.step > attempts.step:
            decision = self._conductor.hear(trial_id, reply.measurement)
            new.append(log.measured(now, trial_id, reply.measurement))
            known = attempts.attributes
            texts = {k: v for k, v in reply.measurement.attributes.items() if known.get(k) != v}
            if texts:
                new.append(log.attributes(now, trial_id, texts))
            if reply.measurement.examples:
                new.append(log.kept(now, trial_id, reply.measurement))
        if reply.checkpoint is not None:
            self._conductor.saved(trial_id)
            place = self._checkpoints.place(trial_id, reply.checkpoint)
            new.append(log.checkpointed(now, trial_id, reply.checkpoint, place))
        if reply.ended is not None:
            outcome = self._conductor.settle(trial_id, reply.ended)
            # A trial stopped for its values would be stopped again if it resumed from its last checkpoint.
            saved = (
                self._saved(trial_id, reply.checkpoint) if outcome is reply.ended and not standing else None
            )
            new.append(self._end(trial_id, outcome, saved=saved))
        self._write([*new, *self._unrunnable()])
        if reply.ended is not None:
            self._tidy([trial_id])
        if self._together is None and not self.written():
            decision = Continue()
        if self._draining and isinstance(decision, Continue):
            return Stop(OutcomeKind.STOPPED, self._draining)
        return decision

    def hear(self, trial_id: str, token: int, measurement: Measurement) -> TrialDecision:
        """`take` of a measurement alone."""
        return self.take(trial_id, token, Reply(measurement=measurement))

    def checkpointed(self, trial_id: str, token: int, step: int) -> TrialDecision:
        """`take` of a checkpoint alone."""
        return self.take(trial_id, token, Reply(checkpoint=step))

    def tell(self, trial_id: str, token: int, outcome: Outcome) -> None:
        """`take` of an end alone."""
        self.take(trial_id, token, Reply(ended=outcome))

    def lost(self, trial_id: str, reason: str, cause: DeathCause) -> Outcome:
        """Record that the worker of a trial died; return how the trial goes on.

        It starts again from its last checkpoint, unless it ended its worker too often.
        """
        attempts = self._attempts[trial_id]
        if not self._conductor.running(trial_id):
            kind = attempts.ended or OutcomeKind.STOPPED
            return Outcome(kind, "the trial had let go of its worker before that was lost")
        standing = self._conductor.standing(trial_id)
        outcome = standing.outcome if standing else attempts.loss("worker", reason, self._retries, cause)
        saved = None if standing else self._saved(trial_id)
        self._write([self._end(trial_id, outcome, lost=cause, saved=saved), *self._unrunnable()])
        if cause is DeathCause.OUTSIDE and not standing:
            self._kills.add(trial_id, reason)
        self._tidy([trial_id])
        return outcome

    def _saved(self, trial_id: str, newest: int | None = None) -> int | None:
        """Return the step of the trial's newest checkpoint; None if it has none."""
        step = max(self._attempts[trial_id].saved, -1 if newest is None else newest)
        return step if step >= 0 else None

    def retry(self, trial_ids: Iterable[str], is_sound: Callable[[str, int], bool]) -> None:
        """Let failed trials run again.

        Args:
            trial_ids: Ids from `conductor.retrying.choose`.
            is_sound: Whether the checkpoint of a trial and step can be read; otherwise the trial restarts
                from scratch.
        """
        for trial_id in trial_ids:
            kept, now = self._attempts[trial_id].kept, self._clock()
            step = kept if kept is not None and is_sound(trial_id, kept) else -1
            if step < 0 and kept is not None:
                self._checkpoints.discard([trial_id])
            others = self._conductor.retry(trial_id, step)
            again = [log.reopened(now, other, trial_id) for other in others]
            self._write([log.retried(now, trial_id, step), *again])

    def drain(self, reason: str) -> None:
        """Hand out nothing more, and stop running trials at their next report; `resume` continues them."""
        self._draining = self._draining or reason
        self._conductor.refuse_new(reason)

    def close(self, reason: str | None = None) -> None:
        """Let go of the sweep: `done`, `budget` or `interrupted`, found out unless given.

        Waits until all is written.
        """
        if not self._closed:
            self._write([self._end_of_session(reason)])
            self._closed = True
        self._writer.settled(None)
        self._tidy_up()
        self._save_snapshot(at_end=True)

    def _end_of_session(self, reason: str | None) -> Event:
        if reason is None and self._error and not self.finished:
            return log.closed(self._clock(), log.ERROR, self._error)
        if reason is None and self._spent and not self.finished:
            return log.closed(self._clock(), log.BUDGET, self._spent, extensions=self._extensions)
        return log.closed(self._clock(), reason or ("done" if self.finished else "interrupted"))

    def _check_budget(self) -> None:
        if self._draining:
            return
        if error := self._conductor.repeated_error():
            self._error = error
            self.drain(error)
        elif reason := self._held.used_up(self._hours, self._clock()) or self._conductor.used_up():
            self._spent = reason
            self.drain(reason)

    def _end(
        self, trial_id: str, outcome: Outcome, *, lost: DeathCause | None = None, saved: int | None = None
    ) -> Event:
        self._conductor.tell(trial_id, outcome)
        if outcome.kind.failed:
            self.on_failure(trial_id, outcome)
        kept = saved if outcome.kind in RESUMABLE else None
        return log.ended(self._clock(), trial_id, outcome, lost=lost, saved=kept)

    def _unrunnable(self) -> list[Event]:
        now = self._clock()
        return [
            event
            for trial, outcome in self._conductor.take_unrunnable()
            for event in (log.asked(now, trial), log.ended(now, trial.trial_id, outcome))
        ]

    def _finish_what_was_decided(self) -> None:
        """Write the stops that the last session decided and did not write, and what cannot run for them."""
        stopped = self._conductor.stopped_while_waiting()
        new = [self._end(trial_id, stop.outcome) for trial_id, stop in stopped]
        self._write([*new, *self._unrunnable()])

    def _write(self, new: Sequence[Event]) -> None:
        if self._together is not None:
            self._together.extend(new)
        else:
            self._send(new)
        for event in new:
            self._note(event)

    def _send(self, new: Sequence[Event]) -> None:
        """Have it written: waited for, but not if the ledger is late already."""
        if not new:
            return
        late = not self._writer.settled()
        self._writer.put(new)
        self._writer.settled(0.0 if late else PROMPT_S)

    def _note(self, event: Event) -> None:
        # Otherwise the one conductor has decided the event itself.
        take = self._fold.hear if self._replays else self._fold.note
        if take(event):
            self._kills.clear()

    def _restored(self, plan: Plan) -> SweepFold | None:
        found = self._snapshots.snapshot() if self._snapshots is not None else None
        if found is None or found.made_for != self._made_for:
            return None
        return SweepFold.restored(plan, found.seq, found.content)

    def _save_snapshot(self, *, at_end: bool = False) -> None:
        """Save a snapshot if many events were written since the newest; the ledger must have them all."""
        new, enough = self._fold.seq - self._snapshot_at, self._snapshot_every
        if not at_end:
            enough = max(enough, int(SNAPSHOT_SHARE * self._snapshot_at))
        if self._snapshots is None or self._fold.seq < self._snapshot_every or new < enough:
            return
        self._snapshot_at = self._fold.seq
        with suppress(StoreError):  # the events are enough
            found = LedgerSnapshot(self._fold.seq, self._made_for, self._fold.content())
            self._snapshots.save_snapshot(found, self._lease)

    def _tidy(self, trial_ids: Iterable[str]) -> None:
        self._untidy.extend(trial_ids)
        self.written()

    def _tidy_up(self) -> None:
        """Delete checkpoints nobody will read again: those of ended trials, unless they were confirmed."""
        done, self._untidy = self._untidy, []
        self._checkpoints.discard(
            trial_id
            for trial_id in dict.fromkeys(done)
            if trial_id in self._attempts and not self._attempts[trial_id].read_again
        )
