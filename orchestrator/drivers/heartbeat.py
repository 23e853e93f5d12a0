"""Keeps the lease of a sweep alive while no event renews it: data is built, or a trial trains for long."""

import logging
import threading
from types import TracebackType
from typing import Self

from orchestrator.errors import LeaseLost, StoreError
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.store import LEASE_S, Ledger

_log = logging.getLogger(__name__)


class Heartbeat:
    """A thread that renews `lease` until it is left."""

    def __init__(self, ledger: Ledger, lease: Lease, period_s: float = LEASE_S / 4) -> None:
        self._ledger = ledger
        self._lease = lease
        self._period_s = period_s
        self._ended = threading.Event()
        self._lost: LeaseLost | None = None
        self._thread = threading.Thread(target=self._beat, name="haltsweep-heartbeat", daemon=True)

    def check(self) -> None:
        """Raises LeaseLost if the lease was found lost."""
        if self._lost is not None:
            raise self._lost

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(self._period_s):
            try:
                self._ledger.renew(self._lease)
            except LeaseLost as lost:
                self._lost = lost
                return
            except StoreError as error:  # an outage may pass before the lease runs out
                _log.warning("the lease could not be renewed: %s", error)
