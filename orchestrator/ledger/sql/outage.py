"""Classify temporary failures of a database, and limit the time spent on retries."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy.exc import DBAPIError
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_exponential,
)

T = TypeVar("T")

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


def is_temporary(error: BaseException) -> bool:
    """Return whether the error is temporary, so that the same transaction may succeed later."""
    cause = error.orig if isinstance(error, DBAPIError) else None
    name = getattr(cause, "sqlite_errorname", None)
    if name is not None:
        return str(name).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
    state = getattr(cause, "sqlstate", None)
    if state is not None:
        return str(state).startswith(TEMPORARY_STATES)
    is_lost = type(cause).__name__ in {"OperationalError", "ConnectionTimeout"}
    return is_lost and hasattr(cause, "sqlstate") and not any(sign in str(cause) for sign in PERMANENT_ERRORS)


class Patience:
    """Rule by which transactions are repeated after temporary failures; threads may share it."""

    def __init__(self, patience_s: float, on_outage: OnOutage | None = None) -> None:
        self._patience_s = patience_s
        self._on_outage = on_outage or (lambda _: None)
        self._closed = threading.Event()

    def run(self, transaction: Callable[[], T], *, patient: bool) -> T:
        """Return the result of `transaction`; report an outage that lasts, and its end.

        Args:
            transaction: Function that runs a transaction; it is repeated for the time of the patience.
            patient: Whether to repeat it at all.

        Raises:
            DBAPIError: The last failure.
        """
        outage: Outage | None = None

        def report(state: RetryCallState) -> None:
            nonlocal outage
            elapsed_s = state.seconds_since_start or 0.0
            if outage is None and elapsed_s >= REPORT_DELAY_S and state.outcome is not None:
                began_at, cause = time.time() - elapsed_s, getattr(state.outcome.exception(), "orig", None)
                outage = Outage(began_at, began_at + self._patience_s, " ".join(str(cause).split()))
                self._on_outage(outage)

        retrying = Retrying(
            retry=retry_if_exception(is_temporary),
            wait=wait_exponential(multiplier=WAITS_S[0], max=WAITS_S[1]),
            stop=stop_after_delay(self._patience_s * patient) | stop_when_event_set(self._closed),
            sleep=sleep_using_event(self._closed),
            before_sleep=report,
            reraise=True,
        )
        result = retrying(transaction)
        if outage is not None:
            self._on_outage(None)
        return result

    def end(self) -> None:
        """End all waiting, now and in future."""
        self._closed.set()
