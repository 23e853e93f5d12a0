"""The heartbeat renews the lease, and reports its loss."""

import threading

import pytest

from orchestrator.errors import LeaseLost, StoreError
from orchestrator.execution.sweep.heartbeat import Heartbeat
from orchestrator.ledger.stop_requests import StopRequest


class FakeLedger:
    """A ledger that renews, or raises the next error of a list."""

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

    def stop_request(self, lease):
        return None


def test_lost_lease_is_raised_at_the_next_check():
    ledger = FakeLedger(None, LeaseLost("process 7 took it"))
    with Heartbeat(ledger, None, period_s=0.001) as heartbeat:
        for _ in range(2):
            assert ledger.called.acquire(timeout=10)
        heartbeat._thread.join(10)
        with pytest.raises(LeaseLost, match="process 7 "):
            heartbeat.check()
    assert ledger.renewed == 1


def test_heartbeat_survives_a_short_outage_and_ends():
    ledger = FakeLedger(StoreError("the database is away"))
    with Heartbeat(ledger, None, period_s=0.001) as heartbeat:
        for _ in range(3):
            assert ledger.called.acquire(timeout=10)
        heartbeat.check()
    assert ledger.renewed >= 1
    assert not [thread for thread in threading.enumerate() if thread.name == "haltsweep-heartbeat"]


class StopAskedLedger(FakeLedger):
    """A ledger that answers requests for a stop in turn, and repeats the last answer."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)
        self.stop_checks = threading.Semaphore(0)

    def stop_request(self, lease):
        self.stop_checks.release()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, StoreError):
            raise answer
        return answer


STOP_LATER, STOP_NOW = (StopRequest("somebody", 1.0, at_once=at_once) for at_once in (False, True))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ((STOP_NOW,), [STOP_NOW, STOP_NOW]),  # like Ctrl-C pressed twice
        ((STOP_LATER, STOP_LATER, STOP_NOW), [STOP_LATER, STOP_NOW]),
        ((StoreError("away"), STOP_LATER), [STOP_LATER]),
    ],
)
def test_stop_request_is_reported_like_ctrl_c(answers, expected):
    ledger, requests = StopAskedLedger(*answers), []
    with Heartbeat(ledger, None, on_stop=requests.append, poll_s=0.001):
        for _ in range(len(answers) + 4):
            assert ledger.stop_checks.acquire(timeout=10)
    assert requests == expected
