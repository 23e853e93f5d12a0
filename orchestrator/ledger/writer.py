"""Writes events in the background: who hears of trials is not held up by a database that is away."""

import threading
from collections.abc import Sequence
from typing import Protocol

from orchestrator.ledger.events import Event
from orchestrator.ledger.lease import Lease

IDLE_S = 5.0
"""The thread ends when nothing came for so long; the next event starts another."""


class Log(Protocol):
    """What the writer needs of a ledger."""

    def append(self, new: Sequence[Event], lease: Lease) -> None:
        """Write all or nothing."""


class Writer:
    """Writes what it is given, in this order; what came while it was writing becomes one transaction."""

    def __init__(self, log: Log, lease: Lease) -> None:
        self._log = log
        self._lease = lease
        self._changed = threading.Condition()
        self._waiting: list[Event] = []
        self._writing = self._lives = False
        self._error: Exception | None = None

    def put(self, new: Sequence[Event]) -> None:
        """Have `new` written; returns at once."""
        with self._changed:
            self._waiting.extend(new)
            if not self._lives:
                self._lives = True
                threading.Thread(target=self._work, name="haltsweep-writer", daemon=True).start()
            self._changed.notify_all()

    def settled(self, timeout_s: float | None = 0.0) -> bool:
        """Whether all is written, at the latest after `timeout_s` seconds; None waits until it is.

        Raises what the ledger raised; then nothing more is written.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or self._idle(), timeout_s)
            if self._error is not None:
                raise self._error
            return self._idle()

    def _idle(self) -> bool:
        return not self._waiting and not self._writing

    def _work(self) -> None:
        while batch := self._next():
            error = None
            try:
                self._log.append(batch, self._lease)
            except Exception as raised:  # whoever asks whether all is written gets it
                error = raised
            with self._changed:
                self._writing, self._error = False, error
                self._changed.notify_all()
                if error is not None:
                    return

    def _next(self) -> list[Event]:
        with self._changed:
            self._lives = bool(self._changed.wait_for(lambda: self._waiting, IDLE_S))
            batch, self._waiting = self._waiting, []
            self._writing = bool(batch)
            return batch
