"""Renew the lease of a sweep while no events are written, for example during data builds or long steps.

The same thread checks for requests to stop the sweep.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from orchestrator.errors import LeaseLost, StoreError
from orchestrator.ledger.lease import LEASE_S, Lease
from orchestrator.ledger.stop_requests import StopRequest
from orchestrator.ledger.store import Ledger

POLL_S = 1.0
"""Seconds between two checks for a request to stop."""


class Heartbeat:
    """Context with a thread that renews `lease` every `period_s` seconds.

    `on_stop` is called in that thread for a request to stop, and again for a request to stop at once.
    """

    def __init__(
        self,
        ledger: Ledger,
        lease: Lease,
        period_s: float = LEASE_S / 4,
        *,
        on_stop: Callable[[StopRequest], None] = lambda _: None,
        poll_s: float = POLL_S,
    ) -> None:
        self._ledger = ledger
        self._lease = lease
        self._period_s = period_s
        self._on_stop = on_stop
        self._poll_s = min(poll_s, period_s)
        self._num_requests = 0
        self._ended = threading.Event()
        self._lost: LeaseLost | None = None
        self._thread = threading.Thread(target=self._renew_until_end, name="haltsweep-heartbeat", daemon=True)

    def check(self) -> None:
        """Raise `LeaseLost` if another session has the lease, so that the thread could not renew it."""
        if self._lost is not None:
            raise self._lost

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _renew_until_end(self) -> None:
        renewed_at = time.monotonic()
        while not self._ended.wait(self._poll_s):
            self._forward_request()
            if time.monotonic() - renewed_at < self._period_s:
                continue
            renewed_at = time.monotonic()
            try:
                self._ledger.renew(self._lease)
            except LeaseLost as error:
                self._lost = error
                return
            except StoreError:
                # The ledger reports the outage. The lease stays valid until another process claims the sweep.
                continue

    def _forward_request(self) -> None:
        """Forward at most one request per call, so that a request to stop at once comes second."""
        with contextlib.suppress(StoreError):  # the ledger reports an outage
            request = self._ledger.stop_request(self._lease)
            if request is not None and self._num_requests < 1 + request.at_once:
                self._num_requests += 1
                self._on_stop(request)
