"""Keeps the lease of a sweep alive while no event renews it: data is built, or a trial trains for long.

It also looks whether somebody has asked for the sweep to be stopped.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from orchestrator.errors import LeaseLost, StoreError
from orchestrator.ledger.lease import LEASE_S, Lease
from orchestrator.ledger.stops import StopRequest
from orchestrator.ledger.store import Ledger

LOOK_S = 1.0
"""Between two looks for a request to stop."""


class Heartbeat:
    """A thread that renews `lease` every `period_s` seconds until it is left.

    `on_stop` is called, in that thread, when the session is asked to stop, and once more when it is asked to
    do so at once.
    """

    def __init__(
        self,
        ledger: Ledger,
        lease: Lease,
        period_s: float = LEASE_S / 4,
        *,
        on_stop: Callable[[StopRequest], None] = lambda _: None,
        look_s: float = LOOK_S,
    ) -> None:
        self._ledger = ledger
        self._lease = lease
        self._period_s = period_s
        self._on_stop = on_stop
        self._look_s = min(look_s, period_s)
        self._passed_on = 0
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
        renewed_at = time.monotonic()
        while not self._ended.wait(self._look_s):
            self._look()
            if time.monotonic() - renewed_at < self._period_s:
                continue
            renewed_at = time.monotonic()
            try:
                self._ledger.renew(self._lease)
            except LeaseLost as lost:
                self._lost = lost
                return
            except StoreError:
                # An outage, which the ledger reports. Until somebody else claims the sweep it stays ours.
                continue

    def _look(self) -> None:
        """One call a look: the second request, to stop at once, must not overtake the first."""
        with contextlib.suppress(StoreError):  # an outage, which the ledger reports
            request = self._ledger.stop_asked(self._lease)
            if request is not None and self._passed_on < 1 + request.at_once:
                self._passed_on += 1
                self._on_stop(request)
