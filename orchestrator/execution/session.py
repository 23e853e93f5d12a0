"""What a scheduler of workers and the recorder say to each other: who runs what, what to do on a report.

Knows no scheduler. It names its runs by keys of its own choosing; a trial may get a second run when a worker
refused it or died. Nothing is decided here: the recorder does that.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from orchestrator.conductor.messages import Reply, Stop
from orchestrator.execution.inline import INTERRUPTED
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.trial.jobs import Attempt
from orchestrator.execution.trial.watchdog import hang_reason
from orchestrator.trials import DeathCause, Outcome, OutcomeKind


class NoAttempt(Enum):
    """Why there is no attempt to run."""

    LATER = auto()
    """No slot is free, or nothing can be handed out before something ends."""
    NEVER = auto()
    """The sweep is over for this session."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a scheduler must know at every turn of its loop."""

    silent: Sequence[str]
    """Runs whose workers are to be killed."""
    draining: bool
    """Whether nothing new is to be started."""


class Hooks(Protocol):
    """What a scheduler tells and asks: the session itself, or one in another process."""

    def offer(self, key: str, num_slots: int) -> Attempt | NoAttempt:
        """Return an attempt for the new run `key` if one of the cluster's slots is free."""

    def reported(self, key: str, replies: Iterable[Reply]) -> tuple[Stop | None, bool]:
        """Record what a worker reported. A `Stop`: the worker must let go of the trial, once.

        And whether all is written: if not, the worker may save nothing that the ledger could lose.
        """

    def tell(self, text: str) -> None:
        """Something that people should know."""

    def turn(self, begun: Sequence[str]) -> Turn:
        """To be called often, with the runs that workers have taken."""

    def lost(self, key: str, reason: str, cause: DeathCause) -> None:
        """The worker of a run died, or was killed because it was silent."""

    def refused(self, key: str) -> None:
        """A worker would not take the run: nothing has begun, another worker gets it."""

    def give_up(self) -> None:
        """While draining: no worker has begun, or will begin, what is left."""


@dataclass(slots=True)
class Session:
    """One driver's run of a sweep."""

    recorder: Recorder
    stop: threading.Event
    """Set from outside, e.g. by a signal: drain."""
    changed: Callable[[], None] = lambda: None
    """Called after everything that is recorded."""
    check: Callable[[], None] = lambda: None
    """Called often; raises if the session must end at once."""
    tell: Callable[[str], None] = lambda _: None
    """Called with what people should know."""
    silence_s: float | None = None
    """A worker that reports nothing for longer is to be killed; None: it may be silent for ever."""
    clock: Callable[[], float] = time.monotonic
    _running: dict[str, Attempt] = field(default_factory=dict)
    _stopping: set[str] = field(default_factory=set)
    _again: deque[Attempt] = field(default_factory=deque)
    _heard_at: dict[str, float] = field(default_factory=dict)
    _silent: set[str] = field(default_factory=set)
    """Those reported as silent."""

    @property
    def running(self) -> tuple[str, ...]:
        """Keys of the runs that have not ended."""
        return tuple(self._running)

    def offer(self, key: str, num_slots: int) -> Attempt | NoAttempt:
        """Return an attempt for the new run `key` if one of the cluster's slots is free."""
        self.tick()
        if not self._running and (self.recorder.finished or self.recorder.draining):
            self.give_up()
            return NoAttempt.NEVER
        if not self.recorder.written() or len(self._running) >= num_slots:
            return NoAttempt.LATER
        attempt = self._again.popleft() if self._again else self.recorder.ask()
        if attempt is None:
            over = self.recorder.finished or self.recorder.draining
            assert self._running or over, "with nothing running, something must be left to hand out"
            return NoAttempt.LATER if self._running else NoAttempt.NEVER
        if not self.recorder.written():
            self._again.appendleft(attempt)
            return NoAttempt.LATER
        self._running[key] = attempt
        self.changed()
        return attempt

    def tick(self) -> None:
        """Look for reasons to drain or to end at once."""
        self.check()
        self.recorder.written()
        if self.stop.is_set() and not self.recorder.draining:
            self.recorder.drain(INTERRUPTED)

    def reported(self, key: str, replies: Iterable[Reply]) -> tuple[Stop | None, bool]:
        """`heard`, and whether all is written: if not, the worker may save nothing that could be lost."""
        return self.heard(key, replies), self.recorder.written()

    def turn(self, begun: Sequence[str]) -> Turn:
        """To be called often, with the runs that workers have taken."""
        self.tick()
        for key in begun:
            self.began(key)
        return Turn(self.silent(), bool(self.recorder.draining))

    def heard(self, key: str, replies: Iterable[Reply]) -> Stop | None:
        """Record what a worker reported. A `Stop`: the worker must let go of the trial, once."""
        attempt = self._running[key]
        self._heard_at[key] = self.clock()
        stop: Stop | None = None
        ended = False
        with self.recorder.together():
            for reply in replies:
                decision = self.recorder.take(attempt.trial_id, attempt.token, reply)
                ended = reply.ended is not None
                if isinstance(decision, Stop):
                    stop = decision
        self.changed()
        if ended:
            del self._running[key], self._heard_at[key]
            self._stopping.discard(key)
        if ended or stop is None or key in self._stopping:
            return None
        if not (self.recorder.written() or self.recorder.draining):
            return None  # it is answered at a later report, once it is written
        self._stopping.add(key)
        return stop

    def began(self, key: str) -> None:
        """A worker has taken the run: from now on it must be heard of."""
        if key in self._running and key not in self._heard_at:
            self._heard_at[key] = self.clock()

    def silent(self) -> list[str]:
        """Runs that were heard of too long ago, each returned once: their workers are to be killed."""
        if self.silence_s is None:
            return []
        now = self.clock()
        found = [
            key for key, at in self._heard_at.items() if now - at > self.silence_s and key not in self._silent
        ]
        self._silent.update(found)
        return found

    def lost(self, key: str, reason: str, cause: DeathCause) -> None:
        """The worker of a run died, or was killed because it was silent."""
        attempt = self._running.pop(key)
        self._stopping.discard(key)
        self._heard_at.pop(key, None)
        if key in self._silent:
            assert self.silence_s is not None, "only with a limit is a run silent"
            outcome = Outcome(OutcomeKind.TIMED_OUT, hang_reason(self.silence_s))
            self.recorder.take(attempt.trial_id, attempt.token, Reply(ended=outcome))
        else:
            self.recorder.lost(attempt.trial_id, reason, cause)
        self._silent.discard(key)
        self.changed()

    def all_lost(self, reason: str) -> None:
        """All workers died with what ran them. While draining nobody asks why: `resume` continues."""
        if self.recorder.draining:
            self.give_up()
        for key in self.running:
            if key in self._heard_at:
                self.lost(key, reason, DeathCause.OUTSIDE)
            else:
                self.refused(key)

    def refused(self, key: str) -> None:
        """A worker would not take the run: nothing has begun, another worker gets it."""
        self._again.append(self._running.pop(key))
        self._heard_at.pop(key, None)

    def give_up(self) -> None:
        """While draining: no worker has begun, or will begin, what is left."""
        left = [*self._running.values(), *self._again]
        self._running.clear()
        self._heard_at.clear()
        self._again.clear()
        for attempt in left:
            outcome = Outcome(OutcomeKind.STOPPED, self.recorder.draining)
            self.recorder.take(attempt.trial_id, attempt.token, Reply(ended=outcome))
            self.changed()
