"""Failures of a database that pass by themselves, and how long they have lasted."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError

PASSING = ("08", "40", "53300", "55P03", "57P")
"""Beginnings of SQLSTATEs: connection lost, deadlock, too many clients, locked, server going or coming."""
LASTING = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")
"""What a server that refuses a connection says when it will do so again; such errors have no SQLSTATE."""
WAITS_S = (0.05, 5.0)
"""First and longest wait between two tries."""
REPORTED_AFTER_S = 1.0
"""What passes sooner is not worth a word."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A database that does not answer."""

    since: float
    """Unix time in seconds of the first failure."""
    until: float
    """Unix time in seconds at which it is given up."""
    cause: str


OnOutage = Callable[[Outage | None], None]
"""Told an outage when it begins, None when it is over; called in whichever thread found out."""


def passing(error: DBAPIError) -> bool:
    """Whether the same transaction may work in a moment."""
    cause = error.orig
    name = getattr(cause, "sqlite_errorname", None)
    if name is not None:
        return str(name).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
    state = getattr(cause, "sqlstate", None)
    if state is not None:
        return str(state).startswith(PASSING)
    lost = type(cause).__name__ in {"OperationalError", "ConnectionTimeout"}
    return lost and hasattr(cause, "sqlstate") and not any(sign in str(cause) for sign in LASTING)


class Patience:
    """Bounds the tries of one outage, over all threads that meet it."""

    def __init__(self, patience_s: float, on_outage: OnOutage | None = None) -> None:
        self._patience_s = patience_s
        self._on_outage = on_outage or (lambda _: None)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._announced = False
        self._since: tuple[float, float] | None = None
        """First failure: Unix time, and the clock that is never set."""

    def failed(self, cause: str) -> None:
        """A try failed for a reason that may pass."""
        with self._lock:
            self._since = self._since or (time.time(), time.monotonic())
            began, ticks = self._since
            tell = (
                not self._announced and self._patience_s > 0 and time.monotonic() - ticks >= REPORTED_AFTER_S
            )
            self._announced = self._announced or tell
        if tell:
            self._on_outage(Outage(began, began + self._patience_s, " ".join(cause.split())))

    def worked(self) -> None:
        """A try worked."""
        if self._since is None:
            return
        with self._lock:
            announced, self._announced, self._since = self._announced, False, None
        if announced:
            self._on_outage(None)

    @property
    def since(self) -> float | None:
        """Unix time in seconds at which the outage began; None if there is none."""
        return self._since[0] if self._since is not None else None

    def wait(self, tries: int) -> bool:
        """Wait before the next try after so many failed ones; False if there is to be none."""
        since = self._since
        if since is None:  # another thread has just had success
            return not self._closed.is_set()
        left = since[1] + self._patience_s - time.monotonic()
        if left <= 0:
            return False
        first, longest = WAITS_S
        return not self._closed.wait(min(longest, left, first * 2 ** min(tries, 20)))

    def end(self) -> None:
        """Nobody waits any more."""
        self._closed.set()
