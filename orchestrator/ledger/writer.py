"""Writes events in a background thread, so that an unavailable database does not block running trials."""

import threading
from collections.abc import Sequence
from typing import Protocol

from orchestrator.ledger.events import Event
from orchestrator.ledger.lease import Lease

IDLE_S = 5.0
"""Seconds without events after which the thread ends; the next event starts another."""


class Log(Protocol):
    """Interface of the ledger that the writer needs."""

    def append(self, new: Sequence[Event], lease: Lease) -> None:
        """Write all events or none."""


class Writer:
    """Background writer that keeps the order of events.

    Events that arrive during a write are written together in the next transaction.
    """

    def __init__(self, log: Log, lease: Lease) -> None:
        self._log = log
        self._lease = lease
        self._changed = threading.Condition()
        self._queue: list[Event] = []
        self._writing = self._lives = False
        self._error: Exception | None = None

    def put(self, new: Sequence[Event]) -> None:
        """Queue `new` for writing; return at once."""
        with self._changed:
            self._queue.extend(new)
            if not self._lives:
                self._lives = True
                threading.Thread(target=self._work, name="haltsweep-writer", daemon=True).start()
            self._changed.notify_all()

    def wait_until_written(self, timeout_s: float | None = 0.0) -> bool:
        """Return whether all events are written, after waiting at most `timeout_s` seconds.

        None waits until all events are written. An error of the ledger is raised here, and nothing more is
        written after it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or self._is_idle(), timeout_s)
            if self._error is not None:
                raise self._error
            return self._is_idle()

    def _is_idle(self) -> bool:
        return not self._queue and not self._writing

    def _work(self) -> None:
        while batch := self._next():
            error = None
            try:
                self._log.append(batch, self._lease)
            except Exception as failure:  # raised by `settled`
                error = failure
            with self._changed:
                self._writing, self._error = False, error
                self._changed.notify_all()
                if error is not None:
                    return

    def _next(self) -> list[Event]:
        with self._changed:
            self._lives = bool(self._changed.wait_for(lambda: self._queue, IDLE_S))
            batch, self._queue = self._queue, []
            self._writing = bool(batch)
            return batch
