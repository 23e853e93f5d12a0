"""One Ctrl-C drains, two end at once; nothing is changed for good."""

import os
import signal
import threading

import pytest

from orchestrator.drivers.signals import interrupts


def raised(number):
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_BLOCK, [])  # a call in which the pending signal is handled


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_sets_the_event_and_the_second_raises(number):
    told = []
    with interrupts(lambda: told.append("told")) as stop:
        assert not stop.is_set()
        raised(number)
        assert stop.is_set()
        assert told == ["told"]
        with pytest.raises(KeyboardInterrupt):
            raised(number)
    assert told == ["told"]


def test_handlers_are_as_before_afterwards():
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with interrupts():
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_outside_the_main_thread_there_is_an_event_and_no_handler():
    before, seen = signal.getsignal(signal.SIGINT), []

    def elsewhere():
        with interrupts() as stop:
            seen.append((stop.is_set(), signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [(False, before)]
