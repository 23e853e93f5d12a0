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
from types import FrameType

from orchestrator.spec.section import Resources

GRACE_S = 30.0
"""For what is no work of the trial: restoring, checkpoints, a busy machine."""


DEBUGGERS = frozenset({"pdb", "bdb", "IPython", "debugpy", "pydevd"})


class TrialHangs(Exception):
    """A trial has not reported for longer than it may."""


def silence_limit(resources: Resources) -> float | None:
    """Return the seconds without a report after which a trial has timed out; None for no limit.

    A trial that was silent for longer than `resources.minutes` has used up its minutes. The seeds that are
    trained together with it may have taken as long.
    """
    limits = []
    if resources.silent_minutes is not None:
        limits.append(resources.silent_minutes * 60)
    if resources.minutes is not None:
        limits.append(resources.minutes * 60 * (resources.pack or 1) + GRACE_S)
    return min(limits, default=None)


def hang_reason(limit_s: float) -> str:
    """Return why a silent trial was ended."""
    return (
        "a trial must report within resources.silent_minutes and resources.minutes, got nothing for "
        f"{limit_s:.0f} s; unless it hangs, raise these limits or report more often"
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
