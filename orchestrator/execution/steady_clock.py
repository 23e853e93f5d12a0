"""Provide Unix time that never jumps, for measuring time differences."""

import time
from collections.abc import Callable


def make_steady_clock() -> Callable[[], float]:
    """Return a clock that starts at the current Unix time and then advances one second per second.

    Later changes of the system clock have no effect. The clock continues while the machine is suspended if
    the system supports that.
    """
    offset = time.time() - _elapsed_s()
    return lambda: offset + _elapsed_s()


def _elapsed_s() -> float:
    """Return seconds since an arbitrary moment, by a clock that is never adjusted."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
