"""How long a trial may be silent: one that hangs never reports, so that nobody can tell it to stop.

Ray's workers are killed from outside. In this process a timer raises an exception in the trial; it cannot
reach a trial that hangs in compiled code, or one that is not run by the main thread: Ctrl-C twice ends these.
Whoever stands in a debugger is not silent.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from orchestrator.plan.types import SILENT_PAUSES, SILENT_S
from orchestrator.spec.section import Resources

GRACE_S = 30.0
"""For what is no work of the trial: restoring, checkpoints, a busy machine."""


DEBUGGERS = frozenset({"pdb", "bdb", "IPython", "debugpy", "pydevd"})


class TrialHangs(Exception):
    """A trial has not reported for longer than it may."""


@dataclass(frozen=True, slots=True)
class SilenceLimit:
    """How long trials of a sweep may be silent."""

    least_s: float
    times: float = 0.0

    def limit_s(self, longest_s: float) -> float:
        """Seconds for a trial whose longest pause between two reports was `longest_s` so far."""
        return max(self.least_s, self.times * longest_s)


def silence_of(resources: Resources) -> SilenceLimit:
    """With a limit of work: after it a silent trial has surely used up its minutes."""
    if resources.minutes is None:
        return SilenceLimit(SILENT_S, SILENT_PAUSES)
    return SilenceLimit(resources.minutes * 60 + GRACE_S)


def hang_reason(limit_s: float) -> str:
    """Why a silent trial was ended."""
    return (
        f"a trial must report within resources.minutes, or by default within {SILENT_S / 60:.0f} minutes or "
        f"{SILENT_PAUSES} times its longest pause, got nothing for {limit_s:.0f} s; unless it hangs, raise "
        "resources.minutes or lower train.report_every"
    )


@contextmanager
def heard_within(limit_s: float | None) -> Iterator[None]:
    """Raises TrialHangs inside after `limit_s` seconds, in the main thread, between two steps of Python."""
    if limit_s is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the shape of a handler
        if not _debugged(frame):
            raise TrialHangs(hang_reason(limit_s))
        signal.setitimer(signal.ITIMER_REAL, limit_s)

    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:  # somebody else's alarm goes on, late rather than never
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - began)), interval)


def _debugged(frame: FrameType | None) -> bool:
    """Whether somebody looks at the trial."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in DEBUGGERS:
            return True
        frame = frame.f_back
    return False
