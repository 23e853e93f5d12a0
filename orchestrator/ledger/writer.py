"""Write events in a background thread, so that an unavailable database does not block running trials."""

import threading
from collections.abc import Sequence
from typing import Protocol

from orchestrator.ledger.events import Event
from orchestrator.ledger.lease import Lease

IDLE_TIMEOUT_S = 5.0
"""Seconds without events after which the thread ends; the next event starts another."""


class AppendableLog(Protocol):
    """Interface of the ledger that the writer needs."""

    def append(self, new: Sequence[Event], lease: Lease) -> None:
        """Write all events or none."""


class EventWriter:
    """Background writer that keeps the order of events.

    Events that arrive during a write are written together in the next transaction.
    """

    def __init__(self, log: AppendableLog, lease: Lease) -> None:
        self._log = log
        self._lease = lease
        self._changed = threading.Condition()
        self._queue: list[Event] = []
        self._is_writing = self._has_thread = False
        self._error: Exception | None = None

    def put(self, new: Sequence[Event]) -> None:
        """Queue `new` for writing; return at once."""
        with self._changed:
            self._queue.extend(new)
            if not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._write_batches, name="haltsweep-writer", daemon=True).start()
            self._changed.notify_all()

    def wait_until_written(self, timeout_s: float | None = 0.0) -> bool:
        """Return whether all events are written, after waiting at most `timeout_s` seconds.

        None waits until all events are written. This method raises an error of the ledger; the writer then
        writes nothing more.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or self._is_idle(), timeout_s)
            if self._error is not None:
                raise self._error
            return self._is_idle()

    def _is_idle(self) -> bool:
        return not self._queue and not self._is_writing

    def _write_batches(self) -> None:
        while batch := self._next_batch():
            error = None
            try:
                self._log.append(batch, self._lease)
            except Exception as failure:  # `wait_until_written` raises it
                error = failure
            with self._changed:
                self._is_writing, self._error = False, error
                self._changed.notify_all()
                if error is not None:
                    return

    def _next_batch(self) -> list[Event]:
        with self._changed:
            self._has_thread = bool(self._changed.wait_for(lambda: self._queue, IDLE_TIMEOUT_S))
            batch, self._queue = self._queue, []
            self._is_writing = bool(batch)
            return batch
