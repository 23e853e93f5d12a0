"""Record all decisions of the conductor in the ledger before a driver acts on them.

While the database of the ledger is unreachable, events are queued. Running trials continue, and their reports
are processed. No trial is started or stopped and no checkpoint is deleted until all events are written.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from orchestrator.conductor.attempts import ExternalKills
from orchestrator.conductor.messages import Continue, Progress, Reply, Stop, TrialDecision
from orchestrator.conductor.outlook import RemainingWork
from orchestrator.errors import StoreError
from orchestrator.execution.checkpoints.checkpoint_index import Checkpoints, FolderCheckpoints
from orchestrator.execution.steady_clock import make_steady_clock
from orchestrator.execution.sweep.sweep_fold import SweepFold, snapshot_key
from orchestrator.execution.trial.trial_jobs import Attempt
from orchestrator.identity import SweepFolder, checkpoint_name
from orchestrator.ledger import events as log
from orchestrator.ledger.events import Event
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.ledger_snapshot import LedgerSnapshot
from orchestrator.ledger.writer import EventWriter
from orchestrator.plan.types import Plan
from orchestrator.trials import DeathCause, Outcome, OutcomeKind, Trial
from trainables.protocol import Measurement

RESUMABLE_KINDS = frozenset({OutcomeKind.CRASHED, OutcomeKind.TIMED_OUT, OutcomeKind.OUT_OF_MEMORY})
"""Failures after which the trial's last checkpoint is retained, so that a retry can resume from it."""
WRITE_WAIT_S = 2.0
"""Maximum seconds to wait for the ledger after each write."""
MIN_SNAPSHOT_EVENTS = 20_000
"""Minimum number of events between two snapshots; reading them takes about one second."""
MIN_NEW_EVENT_SHARE = 0.25
"""Minimum number of new events as a share of all earlier ones, since snapshots grow with the events."""


class EventLog(Protocol):
    """Methods of a ledger that the recorder uses."""

    def append(self, new: Sequence[Event], lease: Lease) -> None:
        """Write all events, or none on an error."""

    def events(self, after_seq: int = 0) -> Iterable[Event]:
        """Return all events after position `after_seq`, oldest first."""


class SnapshotLog(Protocol):
    """Methods of a ledger with snapshots that the recorder uses."""

    def snapshot(self) -> LedgerSnapshot | None:
        """Return the newest snapshot that matches the events; None if there is none."""

    def save_snapshot(self, new: LedgerSnapshot, lease: Lease) -> None:
        """Replace the stored snapshot if `new` ends at the newest event."""


class Recorder:
    """Recorder of the sweep of `plan`, which continues from the last event in its ledger.

    It is not thread-safe: only one driver calls it. After an exception of the ledger (LeaseLost, StoreError)
    it must not be used.
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
        snapshot_every: int = MIN_SNAPSHOT_EVENTS,
    ) -> None:
        # An early stopper depends on all earlier reports, so a second conductor would double its work.
        self._replays = snapshots is not None and not plan.has_stopper
        self._snapshots = snapshots
        self._snapshot_every, self._lease = snapshot_every, lease
        self._snapshot_key = snapshot_key(plan) if self._snapshots is not None else ""
        # Budgets add up differences of these times, so they must not jump with the system clock.
        self._clock = clock = clock or make_steady_clock()
        self._max_hours = plan.wall_clock_hours
        self._extensions = len(plan.extended)
        self._retries = plan.resources.retries
        self._continue_on_error = plan.continue_on_error
        self._writer = EventWriter(ledger, lease)
        self._folder = folder
        self._checkpoints = checkpoints or FolderCheckpoints(folder)
        self.on_failure: Callable[[str, Outcome], None] = lambda *_: None
        """Called with the id and outcome of each failed trial."""
        self._kills = ExternalKills()
        self._drain_reason = ""
        self._exhausted_budget = ""
        self._error = ""
        self._closed = False
        self._transaction: list[Event] | None = None
        self._ids_to_tidy: list[str] = []
        self._fold = self._restore_fold(plan) or SweepFold(plan)
        self._snapshot_at = self._fold.seq
        for event in ledger.events(self._fold.seq):
            self._fold.apply(event)
        self._attempts, self._wall_clock = self._fold.attempts, self._fold.wall_clock
        # The conductor of the fold only replays written events, so a snapshot is never ahead of the ledger.
        self._conductor = self._fold.make_conductor() if self._replays else self._fold.conductor
        self._save_snapshot()
        self._write([log.claim_event(clock(), lease.holder, plan.spec_digest, provenance or {})])
        self._write_pending_decisions()
        self._schedule_discard(self._attempts)

    @property
    def is_finished(self) -> bool:
        """Whether every planned trial has ended."""
        return self._conductor.is_finished

    @property
    def drain_reason(self) -> str:
        """Reason why no new trial is started; empty while trials are started."""
        return self._drain_reason

    def progress(self) -> tuple[Progress, ...]:
        """Return the progress of every arm, in the order of the plan."""
        return self._conductor.progress()

    def outlook(self) -> RemainingWork:
        """Return the running trials and the remaining work."""
        current_outlook, now = self._conductor.outlook(), self._clock()
        running = (
            replace(trial, silent_s=max(0.0, now - self._attempts[trial.trial_id].last_activity_at))
            for trial in current_outlook.running
        )
        return replace(current_outlook, running=tuple(running))

    def open_seconds(self) -> float:
        """Return the total seconds during which sessions had the sweep open."""
        return self._wall_clock.seconds(self._clock())

    def wait_until_written(self, timeout_s: float = 0.0) -> bool:
        """Return whether all events are written within `timeout_s` seconds. Raise errors of the ledger."""
        if self._transaction is not None or not self._writer.wait_until_written(timeout_s):
            return False
        self._discard_checkpoints()
        self._save_snapshot()
        return True

    def next_attempt(self) -> Attempt | None:
        """Return the next trial to run, or None. Start it only once `wait_until_written` returns True."""
        self._check_budget()
        blocked_trials = self._kills.blocked_trials()
        trial = self._conductor.next_trial(blocked_trials)
        new_events = self._unrunnable_events()
        if trial is not None:
            return self._start_attempt(trial, new_events)
        self._write(new_events)
        if (
            blocked_trials
            and not self._drain_reason
            and not any(map(self._conductor.is_running, self._attempts))
        ):
            return self._stop_after_kills(blocked_trials)
        return None

    def _stop_after_kills(self, blocked_trials: Mapping[str, str]) -> Attempt | None:
        """Stop the sweep because the only remaining trials were killed repeatedly.

        With `continue_on_error`, these trials end as crashed instead.
        """
        if self._continue_on_error:
            for trial_id, reason in blocked_trials.items():
                outcome, saved_step = Outcome(OutcomeKind.CRASHED, reason), self._checkpoint_step(trial_id)
                end = self._end_event(trial_id, outcome, saved_step=saved_step)
                self._write([end, *self._unrunnable_events()])
            return self.next_attempt()
        self._error = next(iter(blocked_trials.values()))
        self.drain(self._error)
        return None

    def _start_attempt(self, trial: Trial, new_events: list[Event]) -> Attempt:
        now = self._clock()
        attempts = self._attempts.get(trial.trial_id)
        if attempts is None:
            new_events.append(log.params_event(now, trial))
        token = attempts.token + 1 if attempts else 1
        self._write([*new_events, log.start_event(now, trial.trial_id, token)])
        checkpoints, source = self._folder.checkpoint(trial.trial_id), self._last_checkpoint(trial.source_id)
        return Attempt(trial, token, checkpoints, source)

    def _last_checkpoint(self, trial_id: str | None) -> Path | None:
        """Return the path of the last checkpoint of a finished trial."""
        if trial_id is None:
            return None
        return self._folder.checkpoint(trial_id) / checkpoint_name(self._attempts[trial_id].step)

    def record_data(self, digests: Mapping[str, str]) -> None:
        """Record the digests of the data, by task/split, before any trial reads them."""
        if digests:
            self._write([log.data_event(self._clock(), digests)])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Record all events inside the context in one transaction. Decisions are acted upon after it."""
        assert self._transaction is None, "transactions are not nested"
        new_events = self._transaction = []
        try:
            yield
        finally:
            self._transaction = None
        self._send(new_events)
        self.wait_until_written()

    def record(self, trial_id: str, token: int, reply: Reply) -> TrialDecision:
        """Record a worker's reply in one transaction and return the next action for the worker.

        A step that is already recorded is ignored. A worker with a superseded attempt, or with an ended
        trial, must stop, and its reply is not recorded. After a stop decision, only the end of the
        trial is recorded, so that slow and fast drivers record the same events. A stop that is not written
        yet is returned for a later report.

        Args:
            trial_id: Id of the trial.
            token: Fencing token of the attempt.
            reply: Measurement, checkpoint and outcome of one step.
        """
        attempts = self._attempts[trial_id]
        if attempts.ended is not None or token != attempts.token:
            return Stop(OutcomeKind.STOPPED, f"attempt {token} was superseded by attempt {attempts.token}")
        self._check_budget()
        pending_stop = self._conductor.pending_stop(trial_id)
        if pending_stop is not None:
            reply = Reply(ended=pending_stop.outcome if reply.ended is not None else None)
        now = self._clock()
        new_events: list[Event] = []
        decision: TrialDecision = pending_stop or Continue()
        if reply.measurement is not None and reply.measurement.step > attempts.step:
            decision = self._conductor.report(trial_id, reply.measurement)
            new_events += self._measurement_events(now, trial_id, reply.measurement)
        if reply.checkpoint is not None:
            self._conductor.record_checkpoint(trial_id)
            place = self._checkpoints.place(trial_id, reply.checkpoint)
            new_events.append(log.checkpoint_event(now, trial_id, reply.checkpoint, place))
        if reply.ended is not None:
            outcome, saved_step = self._conductor.validate_outcome(trial_id, reply.ended), None
            # A trial stopped for its values would be stopped again if it resumed from its last checkpoint.
            if outcome is reply.ended and not pending_stop:
                saved_step = self._checkpoint_step(trial_id, reply.checkpoint)
            new_events.append(self._end_event(trial_id, outcome, saved_step=saved_step))
        self._write([*new_events, *self._unrunnable_events()])
        if reply.ended is not None:
            self._schedule_discard([trial_id])
        if self._transaction is None and not self.wait_until_written():
            decision = Continue()
        if self._drain_reason and isinstance(decision, Continue):
            return Stop(OutcomeKind.STOPPED, self._drain_reason)
        return decision

    def _measurement_events(self, now: float, trial_id: str, measurement: Measurement) -> Iterator[Event]:
        """Yield the events of a new measurement: its metrics, changed attributes, and examples."""
        known = self._attempts[trial_id].attributes
        yield log.measurement_event(now, trial_id, measurement)
        if texts := {name: text for name, text in measurement.attributes.items() if known.get(name) != text}:
            yield log.attributes_event(now, trial_id, texts)
        if measurement.examples:
            yield log.examples_event(now, trial_id, measurement)

    def record_death(self, trial_id: str, reason: str, cause: DeathCause) -> Outcome:
        """Record that the worker of a trial died; return the outcome of the attempt.

        The trial restarts from its last checkpoint unless it has lost too many workers.
        """
        attempts = self._attempts[trial_id]
        if not self._conductor.is_running(trial_id):
            kind = attempts.ended or OutcomeKind.STOPPED
            return Outcome(kind, "the trial had already released the worker that was lost")
        pending_stop = self._conductor.pending_stop(trial_id)
        outcome = (
            pending_stop.outcome
            if pending_stop
            else attempts.outcome_after_death("worker", reason, self._retries, cause)
        )
        saved_step = None if pending_stop else self._checkpoint_step(trial_id)
        end = self._end_event(trial_id, outcome, death_cause=cause, saved_step=saved_step)
        self._write([end, *self._unrunnable_events()])
        if cause is DeathCause.OUTSIDE and not pending_stop:
            self._kills.add(trial_id, reason)
        self._schedule_discard([trial_id])
        return outcome

    def _checkpoint_step(self, trial_id: str, newest: int | None = None) -> int | None:
        """Return the step of the trial's newest checkpoint; None if it has none."""
        step = max(self._attempts[trial_id].last_checkpoint_step, -1 if newest is None else newest)
        return step if step >= 0 else None

    def retry(self, trial_ids: Iterable[str], is_sound: Callable[[str, int], bool]) -> None:
        """Run failed trials again.

        Args:
            trial_ids: Ids from `choose_retries`.
            is_sound: Returns whether the checkpoint of a trial at a step is readable; otherwise the trial
                restarts from scratch.
        """
        for trial_id in trial_ids:
            retained_step, now = self._attempts[trial_id].retry_checkpoint_step, self._clock()
            step = retained_step if retained_step is not None and is_sound(trial_id, retained_step) else -1
            if step < 0 and retained_step is not None:
                self._checkpoints.discard([trial_id])
            other_ids = self._conductor.retry(trial_id, step)
            reopened_events = [log.reopening_event(now, other_id, trial_id) for other_id in other_ids]
            self._write([log.retry_event(now, trial_id, step), *reopened_events])

    def drain(self, reason: str) -> None:
        """Start no new trials and stop running trials at their next report; `resume` continues them."""
        self._drain_reason = self._drain_reason or reason
        self._conductor.refuse_new(reason)

    def close(self, reason: str | None = None) -> None:
        """Close the session after all events are written.

        Args:
            reason: `done`, `budget` or `interrupted`; by default derived from the state of the sweep.
        """
        if not self._closed:
            self._write([self._closing_event(reason)])
            self._closed = True
        self._writer.wait_until_written(None)
        self._discard_checkpoints()
        self._save_snapshot(at_end=True)

    def _closing_event(self, reason: str | None) -> Event:
        if reason is None and self._error and not self.is_finished:
            return log.release_event(self._clock(), log.ERROR_REASON, self._error)
        if reason is None and self._exhausted_budget and not self.is_finished:
            return log.release_event(
                self._clock(), log.BUDGET_REASON, self._exhausted_budget, extensions=self._extensions
            )
        return log.release_event(self._clock(), reason or ("done" if self.is_finished else "interrupted"))

    def _check_budget(self) -> None:
        if self._drain_reason:
            return
        if error := self._conductor.repeated_error():
            self._error = error
            self.drain(error)
        elif reason := self._wall_clock.used_up(self._max_hours, self._clock()) or self._conductor.used_up():
            self._exhausted_budget = reason
            self.drain(reason)

    def _end_event(
        self,
        trial_id: str,
        outcome: Outcome,
        *,
        death_cause: DeathCause | None = None,
        saved_step: int | None = None,
    ) -> Event:
        self._conductor.record_end(trial_id, outcome)
        if outcome.kind.is_failure:
            self.on_failure(trial_id, outcome)
        retained_step = saved_step if outcome.kind in RESUMABLE_KINDS else None
        return log.end_event(
            self._clock(), trial_id, outcome, death_cause=death_cause, saved_step=retained_step
        )

    def _unrunnable_events(self) -> list[Event]:
        now = self._clock()
        return [
            event
            for trial, outcome in self._conductor.take_unrunnable()
            for event in (log.params_event(now, trial), log.end_event(now, trial.trial_id, outcome))
        ]

    def _write_pending_decisions(self) -> None:
        """Write stops that the last session decided but did not write, and trials that cannot run now."""
        stopped_trials = self._conductor.stopped_while_waiting()
        new_events = [self._end_event(trial_id, stop.outcome) for trial_id, stop in stopped_trials]
        self._write([*new_events, *self._unrunnable_events()])

    def _write(self, new_events: Sequence[Event]) -> None:
        if self._transaction is not None:
            self._transaction.extend(new_events)
        else:
            self._send(new_events)
        for event in new_events:
            self._apply_event(event)

    def _send(self, new_events: Sequence[Event]) -> None:
        """Write events; wait for the ledger, unless the ledger is already behind."""
        if not new_events:
            return
        is_behind = not self._writer.wait_until_written()
        self._writer.put(new_events)
        self._writer.wait_until_written(0.0 if is_behind else WRITE_WAIT_S)

    def _apply_event(self, event: Event) -> None:
        # Without replay, the single conductor has already decided this event.
        apply_event = self._fold.apply if self._replays else self._fold.apply_decision
        if apply_event(event):
            self._kills.clear()

    def _restore_fold(self, plan: Plan) -> SweepFold | None:
        stored_snapshot = self._snapshots.snapshot() if self._snapshots is not None else None
        if stored_snapshot is None or stored_snapshot.made_for != self._snapshot_key:
            return None
        return SweepFold.restore(plan, stored_snapshot.seq, stored_snapshot.content)

    def _save_snapshot(self, *, at_end: bool = False) -> None:
        """Save a snapshot if enough events are new. The ledger must already contain all events."""
        num_new, num_required = self._fold.seq - self._snapshot_at, self._snapshot_every
        if not at_end:
            num_required = max(num_required, int(MIN_NEW_EVENT_SHARE * self._snapshot_at))
        if self._snapshots is None or self._fold.seq < self._snapshot_every or num_new < num_required:
            return
        self._snapshot_at = self._fold.seq
        with suppress(StoreError):  # the events are sufficient without a snapshot
            snapshot = LedgerSnapshot(self._fold.seq, self._snapshot_key, self._fold.content())
            self._snapshots.save_snapshot(snapshot, self._lease)

    def _schedule_discard(self, trial_ids: Iterable[str]) -> None:
        self._ids_to_tidy.extend(trial_ids)
        self.wait_until_written()

    def _discard_checkpoints(self) -> None:
        """Delete checkpoints that will not be read again: those of ended trials, except confirm trials."""
        ended_ids, self._ids_to_tidy = self._ids_to_tidy, []
        known_ids = (trial_id for trial_id in ended_ids if trial_id in self._attempts)
        self._checkpoints.discard(
            trial_id for trial_id in known_ids if not self._attempts[trial_id].keeps_checkpoints
        )
