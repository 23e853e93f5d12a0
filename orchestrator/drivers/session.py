"""What a scheduler of workers and the recorder say to each other: who runs what, what to do on a report.

Knows no scheduler. It names its runs by keys of its own choosing; a trial may get a second run when a worker
refused it or died. Nothing is decided here: the recorder does that.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

from orchestrator.conductor.messages import Reply, Stop
from orchestrator.conductor.recorder import Attempt, Recorder
from orchestrator.drivers.inline import INTERRUPTED
from orchestrator.drivers.silence import told
from orchestrator.trials import Outcome, OutcomeKind


class Offer(Enum):
    """Why there is no attempt to run."""

    LATER = auto()
    """No slot is free, or nothing can be handed out before something ends."""
    NEVER = auto()
    """The sweep is over for this session."""


@dataclass(slots=True)
class Session:
    """One driver's run of a sweep."""

    recorder: Recorder
    slots: Callable[[], int]
    """How many trials fit on the cluster at this moment."""
    stop: threading.Event
    """Set from outside, e.g. by a signal: drain."""
    changed: Callable[[], None] = lambda: None
    """Called after everything that is recorded."""
    check: Callable[[], None] = lambda: None
    """Called often; raises if the session must end at once."""
    silence_s: float | None = None
    """A worker that reports nothing for so long is to be killed; None: it may be silent for ever."""
    clock: Callable[[], float] = time.monotonic
    failure: Exception | None = None
    """What went wrong first: schedulers wrap what their hooks raise, or lose it."""
    _running: dict[str, Attempt] = field(default_factory=dict)
    _stopping: set[str] = field(default_factory=set)
    _again: deque[Attempt] = field(default_factory=deque)
    _heard_at: dict[str, float] = field(default_factory=dict)
    _silent: set[str] = field(default_factory=set)

    @property
    def running(self) -> tuple[str, ...]:
        """Keys of runs that have not ended."""
        return tuple(self._running)

    @contextmanager
    def remembered(self) -> Iterator[None]:
        """Keeps the first exception raised inside."""
        try:
            yield
        except Exception as error:
            self.failure = self.failure or error
            raise

    def offer(self, key: str) -> Attempt | Offer:
        """An attempt for the new run `key`, asked for only when a slot is free."""
        self.tick()
        if not self._running and (self.recorder.finished or self.recorder.draining):
            self.give_up()
            return Offer.NEVER
        if len(self._running) >= self.slots():
            return Offer.LATER
        attempt = self._again.popleft() if self._again else self.recorder.ask()
        if attempt is None:
            over = self.recorder.finished or self.recorder.draining
            assert self._running or over, "with nothing running, something must be left to hand out"
            return Offer.LATER if self._running else Offer.NEVER
        self._running[key] = attempt
        self.changed()
        return attempt

    def tick(self) -> None:
        """Look for reasons to drain or to end at once."""
        self.check()
        if self.stop.is_set() and not self.recorder.draining:
            self.recorder.drain(INTERRUPTED)

    def heard(self, key: str, replies: Iterable[Reply]) -> Stop | None:
        """Record what a worker reported. A `Stop`: the worker must let go of the trial, once."""
        attempt = self._running[key]
        self._heard_at[key] = self.clock()
        stop: Stop | None = None
        ended = False
        with self.recorder.together():
            for reply in replies:
                verdict = self.recorder.take(attempt.trial_id, attempt.token, reply)
                ended = reply.ended is not None
                if isinstance(verdict, Stop):
                    stop = verdict
        self.changed()
        if ended:
            del self._running[key], self._heard_at[key]
            self._stopping.discard(key)
        if ended or stop is None or key in self._stopping:
            return None
        self._stopping.add(key)
        return stop

    def began(self, key: str) -> None:
        """A worker has taken the run: from now on it must be heard of."""
        if key in self._running:
            self._heard_at.setdefault(key, self.clock())

    def silent(self) -> list[str]:
        """Runs that were heard of too long ago, each told once: their workers are to be killed."""
        if self.silence_s is None:
            return []
        since = self.clock() - self.silence_s
        found = [key for key, at in self._heard_at.items() if at < since and key not in self._silent]
        self._silent.update(found)
        return found

    def lost(self, key: str, reason: str) -> None:
        """The worker of a run died, or was killed because it was silent."""
        attempt = self._running.pop(key)
        self._stopping.discard(key)
        self._heard_at.pop(key, None)
        if key in self._silent:
            assert self.silence_s is not None, "only where there is a limit is anybody too silent"
            outcome = Outcome(OutcomeKind.TIMED_OUT, told(self.silence_s))
            self.recorder.take(attempt.trial_id, attempt.token, Reply(ended=outcome))
        else:
            self.recorder.lost(attempt.trial_id, reason)
        self.changed()

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
