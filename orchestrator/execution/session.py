"""Provide attempts to a scheduler of workers and record their reports.

The scheduler names its runs by keys. A trial gets another run if a worker refuses it or dies. The
recorder makes all decisions.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from orchestrator.conductor.messages import Reply, Stop
from orchestrator.execution.inline import STOP_REASON
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.trial.trial_jobs import Attempt
from orchestrator.execution.trial.watchdog import hang_reason
from orchestrator.trials import DeathCause, Outcome, OutcomeKind


class NoAttempt(Enum):
    """Reason why no attempt can run now."""

    LATER = auto()
    """No slot is free, or the next attempt depends on the end of a running one."""
    NEVER = auto()
    """The sweep is over for this session."""


@dataclass(frozen=True, slots=True)
class SchedulerTurn:
    """Instructions for a scheduler at one turn of its loop."""

    silent_keys: Sequence[str]
    """Keys of runs whose workers must be killed."""
    is_draining: bool
    """Whether no further run may start."""


@dataclass(slots=True)
class Session:
    """One driver's execution of a sweep."""

    recorder: Recorder
    stop: threading.Event
    """Event set from outside, e.g. by a signal, to drain the sweep."""
    on_change: Callable[[], None] = lambda: None
    """Called after every recorded change."""
    check: Callable[[], None] = lambda: None
    """Called often; raises if the session must end at once."""
    warn: Callable[[str], None] = lambda _: None
    """Called with warnings for the user."""
    silence_s: float | None = None
    """Seconds without a report after which a worker is killed; None for no limit."""
    clock: Callable[[], float] = time.monotonic
    _running: dict[str, Attempt] = field(default_factory=dict)
    _keys_to_stop: set[str] = field(default_factory=set)
    _attempts_to_reassign: deque[Attempt] = field(default_factory=deque)
    _reported_at: dict[str, float] = field(default_factory=dict)
    _silent_keys: set[str] = field(default_factory=set)
    """Keys of silent runs that `update` has returned."""

    @property
    def running(self) -> tuple[str, ...]:
        """Keys of runs that have not ended."""
        return tuple(self._running)

    def next_attempt(self, key: str, num_slots: int) -> Attempt | NoAttempt:
        """Return an attempt for the new run `key` if one of `num_slots` slots is free."""
        self.check_stop()
        if not self._running and (self.recorder.is_finished or self.recorder.drain_reason):
            self.end_unstarted()
            return NoAttempt.NEVER
        if not self.recorder.wait_until_written() or len(self._running) >= num_slots:
            return NoAttempt.LATER
        attempt = (
            self._attempts_to_reassign.popleft()
            if self._attempts_to_reassign
            else self.recorder.next_attempt()
        )
        if attempt is None:
            is_over = self.recorder.is_finished or self.recorder.drain_reason
            assert self._running or is_over, (
                "without a running trial, the recorder has an attempt unless the sweep is over"
            )
            return NoAttempt.LATER if self._running else NoAttempt.NEVER
        if not self.recorder.wait_until_written():
            self._attempts_to_reassign.appendleft(attempt)
            return NoAttempt.LATER
        self._running[key] = attempt
        self.on_change()
        return attempt

    def check_stop(self) -> None:
        """Check for reasons to drain or to end at once."""
        self.check()
        self.recorder.wait_until_written()
        if self.stop.is_set() and not self.recorder.drain_reason:
            self.recorder.drain(STOP_REASON)

    def report(self, key: str, replies: Iterable[Reply]) -> tuple[Stop | None, bool]:
        """Record the replies of a worker.

        Returns:
            A `Stop`, returned once, if the worker must end the trial; and whether the ledger contains all
            reports. Until it does, the worker must not write a checkpoint.
        """
        return self._record_replies(key, replies), self.recorder.wait_until_written()

    def update(self, started: Sequence[str]) -> SchedulerTurn:
        """Update the session with the runs that workers have taken; must be called often."""
        self.check_stop()
        for key in started:
            if key in self._running:
                self._reported_at.setdefault(key, self.clock())
        return SchedulerTurn(self._silent_runs(), bool(self.recorder.drain_reason))

    def _record_replies(self, key: str, replies: Iterable[Reply]) -> Stop | None:
        attempt = self._running[key]
        self._reported_at[key] = self.clock()
        stop: Stop | None = None
        has_ended = False
        with self.recorder.transaction():
            for reply in replies:
                decision = self.recorder.record(attempt.trial_id, attempt.token, reply)
                has_ended = reply.ended is not None
                if isinstance(decision, Stop):
                    stop = decision
        self.on_change()
        if has_ended:
            del self._running[key], self._reported_at[key]
            self._keys_to_stop.discard(key)
        if has_ended or stop is None or key in self._keys_to_stop:
            return None
        if not (self.recorder.wait_until_written() or self.recorder.drain_reason):
            return None  # a later report receives the stop, once the ledger contains this one
        self._keys_to_stop.add(key)
        return stop

    def _silent_runs(self) -> list[str]:
        """Return runs without a recent report, each once, whose workers must be killed."""
        if self.silence_s is None:
            return []
        now = self.clock()
        silent_keys = [
            key for key, reported_at in self._reported_at.items() if now - reported_at > self.silence_s
        ]
        new_keys = [key for key in silent_keys if key not in self._silent_keys]
        self._silent_keys.update(new_keys)
        return new_keys

    def record_death(self, key: str, reason: str, cause: DeathCause) -> None:
        """Record that the worker of a run died, or was killed because it was silent."""
        attempt = self._running.pop(key)
        self._keys_to_stop.discard(key)
        self._reported_at.pop(key, None)
        if key in self._silent_keys:
            assert self.silence_s is not None, "a run is silent only with a limit"
            outcome = Outcome(OutcomeKind.TIMED_OUT, hang_reason(self.silence_s))
            self.recorder.record(attempt.trial_id, attempt.token, Reply(ended=outcome))
        else:
            self.recorder.record_death(attempt.trial_id, reason, cause)
        self._silent_keys.discard(key)
        self.on_change()

    def record_all_deaths(self, reason: str) -> None:
        """Record that all workers died with their scheduler."""
        if self.recorder.drain_reason:
            self.end_unstarted()
        for key in self.running:
            if key in self._reported_at:
                self.record_death(key, reason, DeathCause.OUTSIDE)
            else:
                self.reassign(key)

    def reassign(self, key: str) -> None:
        """Assign the run to another worker, since a worker refused to start it."""
        self._attempts_to_reassign.append(self._running.pop(key))
        self._reported_at.pop(key, None)

    def end_unstarted(self) -> None:
        """End the runs that no worker has started, while the session drains."""
        unstarted = [*self._running.values(), *self._attempts_to_reassign]
        self._running.clear()
        self._reported_at.clear()
        self._attempts_to_reassign.clear()
        for attempt in unstarted:
            outcome = Outcome(OutcomeKind.STOPPED, self.recorder.drain_reason)
            self.recorder.record(attempt.trial_id, attempt.token, Reply(ended=outcome))
            self.on_change()
