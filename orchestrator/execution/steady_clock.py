"""Unix time that never jumps, for moments whose differences count."""

import time
from collections.abc import Callable


def steady_clock() -> Callable[[], float]:
    """Return a clock that shows Unix time now and from then on advances by one second a second.

    If the system's clock is set, the returned clock does not follow. It continues while the machine is
    suspended, where the system can measure that.
    """
    offset = time.time() - _elapsed_s()
    return lambda: offset + _elapsed_s()


def _elapsed_s() -> float:
    """Return seconds since an arbitrary moment, by a clock that is never set."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
