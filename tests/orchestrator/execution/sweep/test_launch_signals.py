"""One Ctrl-C drains, two end at once; nothing is changed for good."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from orchestrator.execution.signals import (
    INTERRUPTED,
    SIGNALS,
    SignalEffect,
    delayed_interrupts,
    end_process,
    interrupts,
)
from tests.support.processes.commands import PATIENCE_S
from trainables.custom.extensions import exits_raised


def raised(number):
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_BLOCK, [])  # a call in which the pending signal is handled


class Ear:
    """What is told, in another thread."""

    def __init__(self):
        self.told = []
        self._news = threading.Condition()

    def __call__(self, heard):
        with self._news:
            self.told.append(heard)
            self._news.notify_all()

    def wait(self, count):
        with self._news:
            assert self._news.wait_for(lambda: len(self.told) >= count, PATIENCE_S)
        return self.told


@pytest.fixture(autouse=True)
def not_under_nohup():
    """Who starts the tests may have SIGHUP ignored, and then we do too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_drains_and_the_second_raises(number):
    ear = Ear()
    with interrupts(ear) as heard, heard.draining():
        assert not heard.stop.is_set()
        raised(number)
        assert heard.stop.is_set()
        assert ear.wait(1) == [SignalEffect.DRAIN]
        assert not heard.hurry.is_set()
        with pytest.raises(KeyboardInterrupt):
            raised(number)
        assert ear.wait(2) == [SignalEffect.DRAIN, SignalEffect.HURRY]
        assert heard.hurry.is_set()


def test_while_no_trial_runs_the_first_raises():
    ear = Ear()
    with interrupts(ear):
        with pytest.raises(KeyboardInterrupt):
            raised(signal.SIGINT)
        assert ear.wait(1) == [SignalEffect.LEAVE]


def test_two_that_are_handled_as_one_raise():
    """Python calls a handler once for signals that came while compiled code ran."""
    ear = Ear()
    with interrupts(ear) as heard, heard.draining():
        pipe = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it comes from outside
            os.write(pipe, bytes([signal.SIGINT, signal.SIGINT]))
            time.sleep(PATIENCE_S)
    assert ear.wait(2) == [SignalEffect.DRAIN, SignalEffect.HURRY]


def test_what_is_shielded_is_finished_first():
    done = []
    with interrupts():
        with pytest.raises(KeyboardInterrupt), delayed_interrupts():  # noqa: PT012 - the end of it matters
            with delayed_interrupts():
                raised(signal.SIGINT)
                done.append("inner")
            done.append("outer")
        with delayed_interrupts():
            done.append("once")
    with delayed_interrupts():
        done.append("anywhere")
    assert done == ["inner", "outer", "once", "anywhere"]


def test_inside_of_another_one_it_is_that_one():
    with interrupts() as outer, interrupts() as inner:
        assert inner is outer
    with interrupts() as new:
        assert new is not outer


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts() as heard:
            raised(signal.SIGHUP)
            assert not heard.stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


COMPILED = """
import hashlib, os, signal, threading
from orchestrator.execution import signals

signals.DEAF_S = 0.5

def told(heard):
    print(heard.name, flush=True)
    if heard is signals.SignalEffect.DRAIN:
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()

with signals.interrupts(told) as heard, heard.draining():
    threading.Timer(0.2, os.kill, args=(os.getpid(), signal.SIGINT)).start()
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2**31 - 1)  # many minutes without a step of Python
"""


def test_a_process_deep_in_compiled_code_says_that_it_heard_and_ends_at_the_second():
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.stdout.split() == ["DRAIN", "HURRY"]
    assert (done.returncode, done.stderr) == (INTERRUPTED, "")


def test_handlers_are_as_before_afterwards():
    before = [signal.getsignal(each) for each in SIGNALS]
    with interrupts():
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert [signal.getsignal(each) for each in SIGNALS] == before
    assert signal.set_wakeup_fd(-1) == -1
    assert not [each for each in threading.enumerate() if each.name == "haltsweep-signals"]


def test_outside_the_main_thread_there_is_an_event_and_no_handler():
    before, seen = signal.getsignal(signal.SIGINT), []

    def elsewhere():
        with interrupts() as heard:
            seen.append((heard.stop.is_set(), signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [(False, before)]


def test_a_process_is_ended_while_exits_of_others_are_seen():
    if (copy := os.fork()) == 0:
        with exits_raised():
            end_process(7)
    assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 7
