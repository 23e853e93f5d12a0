"""How long a trial may be silent: one that hangs never reports, so that nobody can tell it to stop.

Ray's workers are killed from outside. In this process a timer raises an exception in the trial; it cannot
reach a trial that hangs in compiled code, or one that is not run by the main thread: end these by hand.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from orchestrator.plan.types import Resources

GRACE_S = 30.0
"""For what is no work of the trial: restoring, checkpoints, a busy machine."""


class Silent(Exception):
    """A trial has not reported for longer than it may."""


def silence_limit(resources: Resources) -> float | None:
    """Seconds after which a trial that reports nothing has surely used up its minutes; None for never."""
    return None if resources.minutes is None else resources.minutes * 60 + GRACE_S


def told(limit_s: float) -> str:
    """Why a silent trial was ended."""
    return (
        f"a trial must report within resources.minutes, got nothing for {limit_s:.0f} s; unless it hangs, "
        "raise resources.minutes or lower train.report_every"
    )


@contextmanager
def heard_within(limit_s: float | None) -> Iterator[None]:
    """Raises Silent inside after `limit_s` seconds, in the main thread and between two steps of Python."""
    if limit_s is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the shape of a handler
        raise Silent(told(limit_s))

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
