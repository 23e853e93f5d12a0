"""Classify temporary failures of a database, and limit the time spent on retries."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError

TEMPORARY_STATES = ("08", "40", "53300", "55P03", "57P")
"""SQLSTATE prefixes of temporary errors: connection lost, deadlock, too many clients, locked, restarting."""
PERMANENT_ERRORS = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")
"""Texts of permanent connection errors, which have no SQLSTATE."""
WAITS_S = (0.05, 5.0)
"""Shortest and longest wait between two tries, in seconds."""
REPORT_DELAY_S = 1.0
"""Seconds after which an outage is reported."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A period in which a database does not answer."""

    since: float
    """Unix time in seconds of the first failure."""
    until: float
    """Unix time in seconds at which retries end."""
    cause: str


OnOutage = Callable[[Outage | None], None]
"""Callback with an outage when it begins, and with None when it ends; called in any thread."""


def is_temporary(error: DBAPIError) -> bool:
    """Return whether the error is temporary, so that the same transaction may succeed later."""
    cause = error.orig
    name = getattr(cause, "sqlite_errorname", None)
    if name is not None:
        return str(name).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
    state = getattr(cause, "sqlstate", None)
    if state is not None:
        return str(state).startswith(TEMPORARY_STATES)
    is_lost = type(cause).__name__ in {"OperationalError", "ConnectionTimeout"}
    return is_lost and hasattr(cause, "sqlstate") and not any(sign in str(cause) for sign in PERMANENT_ERRORS)


class Patience:
    """Limit on the time of retries in one outage, shared by all threads."""

    def __init__(self, patience_s: float, on_outage: OnOutage | None = None) -> None:
        self._patience_s = patience_s
        self._on_outage = on_outage or (lambda _: None)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._is_reported = False
        self._since: tuple[float, float] | None = None
        """Time of the first failure: Unix time and monotonic time, in seconds."""

    def record_failure(self, cause: str) -> None:
        """Record a temporary failure, and report the outage if it lasts."""
        with self._lock:
            self._since = self._since or (time.time(), time.monotonic())
            began_at, began_ticks = self._since
            is_long = self._patience_s > 0 and time.monotonic() - began_ticks >= REPORT_DELAY_S
            is_new = is_long and not self._is_reported
            self._is_reported = self._is_reported or is_new
        if is_new:
            self._on_outage(Outage(began_at, began_at + self._patience_s, " ".join(cause.split())))

    def record_success(self) -> None:
        """Record a success, and report the end of the outage."""
        if self._since is None:
            return
        with self._lock:
            is_reported, self._is_reported, self._since = self._is_reported, False, None
        if is_reported:
            self._on_outage(None)

    @property
    def began_at(self) -> float | None:
        """Unix time in seconds at which the outage began; None if there is none."""
        return self._since[0] if self._since is not None else None

    def wait(self, tries: int) -> bool:
        """Wait before the next try after `tries` failed tries; return whether to try again."""
        since = self._since
        if since is None:  # another thread has just succeeded
            return not self._closed.is_set()
        wait_left_s = since[1] + self._patience_s - time.monotonic()
        if wait_left_s <= 0:
            return False
        shortest, longest = WAITS_S
        return not self._closed.wait(min(longest, wait_left_s, shortest * 2 ** min(tries, 20)))

    def end(self) -> None:
        """End all waiting, now and in future."""
        self._closed.set()
