"""The lease is renewed while nothing else renews it, and its loss is noticed."""

import threading

import pytest

from orchestrator.errors import LeaseLost, StoreError
from orchestrator.execution.sweep.heartbeat import Heartbeat
from orchestrator.ledger.stop_requests import StopRequest


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

    def stop_asked(self, lease):
        return None


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


def test_an_outage_that_passes_is_survived():
    ledger = FakeLedger(StoreError("the database is away"))
    with Heartbeat(ledger, None, period_s=0.001) as heartbeat:
        for _ in range(3):
            assert ledger.called.acquire(timeout=10)
        heartbeat.check()
    assert ledger.renewed >= 1


class AskedLedger(FakeLedger):
    """Answers a look for requests with what comes next, and then with the last for ever."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)
        self.looked = threading.Semaphore(0)

    def stop_asked(self, lease):
        self.looked.release()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, StoreError):
            raise answer
        return answer


SOON, NOW = (StopRequest("somebody", 1.0, at_once=at_once) for at_once in (False, True))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ((None,), []),
        ((None, SOON), [SOON]),
        ((NOW,), [NOW, NOW]),  # as Ctrl-C twice
        ((SOON, SOON, NOW), [SOON, NOW]),
        ((StoreError("away"), SOON), [SOON]),
    ],
)
def test_a_request_to_stop_is_told_as_often_as_ctrl_c_would_be_pressed(answers, expected):
    ledger, heard = AskedLedger(*answers), []
    with Heartbeat(ledger, None, on_stop=heard.append, look_s=0.001):
        for _ in range(len(answers) + 4):
            assert ledger.looked.acquire(timeout=10)
    assert heard == expected
