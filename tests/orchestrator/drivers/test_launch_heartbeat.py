"""The lease is renewed while nothing else renews it, and its loss is noticed."""

import threading

import pytest

from orchestrator.drivers.heartbeat import Heartbeat
from orchestrator.errors import LeaseLost, StoreError


class FakeLedger:
    """Renews until told what to raise."""

    def __init__(self, *raises):
        self.raises = list(raises)
        self.renewed = 0
        self.called = threading.Semaphore(0)

    def renew(self, lease):
        try:
            if self.raises and (error := self.raises.pop(0)) is not None:
                raise error
            self.renewed += 1
        finally:
            self.called.release()


def test_it_beats_until_it_is_left():
    ledger = FakeLedger()
    with Heartbeat(ledger, None, period_s=0.001) as heartbeat:
        for _ in range(3):
            assert ledger.called.acquire(timeout=10)
        heartbeat.check()
    after = ledger.renewed
    assert after >= 3
    assert threading.active_count() >= 1
    assert not [each for each in threading.enumerate() if each.name == "haltsweep-heartbeat"]
    assert ledger.renewed == after


def test_a_lost_lease_is_told_at_the_next_check():
    ledger = FakeLedger(None, LeaseLost("process 7 took it"))
    with Heartbeat(ledger, None, period_s=0.001) as heartbeat:
        for _ in range(2):
            assert ledger.called.acquire(timeout=10)
        heartbeat._thread.join(10)
        with pytest.raises(LeaseLost, match="process 7 took it"):
            heartbeat.check()
    assert ledger.renewed == 1


def test_an_outage_that_passes_is_survived(caplog):
    ledger = FakeLedger(StoreError("the database is away"))
    with Heartbeat(ledger, None, period_s=0.001) as heartbeat:
        for _ in range(3):
            assert ledger.called.acquire(timeout=10)
        heartbeat.check()
    assert "the lease could not be renewed: the database is away" in caplog.text
