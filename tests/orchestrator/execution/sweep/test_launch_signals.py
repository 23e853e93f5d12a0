"""The first Ctrl-C drains, the second ends at once, and all signal handlers are restored."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from orchestrator.execution.signals import INTERRUPTED, SIGNALS, SignalEffect, delayed_interrupts, interrupts
from tests.support.processes.commands import PATIENCE_S


def send_signal(number):
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_BLOCK, [])  # a call in which the pending signal is handled


class EffectRecorder:
    """Record reported signal effects, which come from another thread."""

    def __init__(self):
        self.effects = []
        self._changed = threading.Condition()

    def __call__(self, effect):
        with self._changed:
            self.effects.append(effect)
            self._changed.notify_all()

    def wait(self, count):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.effects) >= count, PATIENCE_S)
        return self.effects


@pytest.fixture(autouse=True)
def default_sighup():
    """Reset SIGHUP, which the process that starts the tests may ignore."""
    old_handler = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, old_handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_first_signal_drains_and_second_raises(number):
    recorder = EffectRecorder()
    with interrupts(recorder) as signals, signals.draining():
        assert not signals.stop.is_set()
        send_signal(number)
        assert signals.stop.is_set()
        assert recorder.wait(1) == [SignalEffect.DRAIN]
        assert not signals.exit_now.is_set()
        with pytest.raises(KeyboardInterrupt):
            send_signal(number)
        assert recorder.wait(2) == [SignalEffect.DRAIN, SignalEffect.EXIT_NOW]
        assert signals.exit_now.is_set()


def test_first_signal_raises_while_no_trial_runs():
    recorder = EffectRecorder()
    with interrupts(recorder):
        with pytest.raises(KeyboardInterrupt):
            send_signal(signal.SIGINT)
        assert recorder.wait(1) == [SignalEffect.EXIT]


def test_delayed_interrupt_waits_for_the_end_of_the_block():
    finished_blocks = []
    with (  # noqa: PT012 - the end of the block matters
        interrupts(),
        pytest.raises(KeyboardInterrupt),
        delayed_interrupts(),
    ):
        with delayed_interrupts():
            send_signal(signal.SIGINT)
            finished_blocks.append("inner")
        finished_blocks.append("outer")
    assert finished_blocks == ["inner", "outer"]


def test_signal_ignored_by_nohup_stays_ignored():
    old_handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts() as signals:
            send_signal(signal.SIGHUP)
            assert not signals.stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, old_handler)


COMPILED_CODE = """
import hashlib, os, signal, threading
from orchestrator.execution import signals

signals.STEP_S = 0.5

def print_effect(effect):
    print(effect.name, flush=True)
    if effect is signals.SignalEffect.DRAIN:
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()

with signals.interrupts(print_effect) as handler, handler.draining():
    threading.Timer(0.2, os.kill, args=(os.getpid(), signal.SIGINT)).start()
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2**31 - 1)  # many minutes without a step of Python
"""


def test_process_in_compiled_code_reports_both_signals_and_ends():
    result = subprocess.run(
        [sys.executable, "-c", COMPILED_CODE], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert result.stdout.split() == ["DRAIN", "EXIT_NOW"]
    assert (result.returncode, result.stderr) == (INTERRUPTED, "")


def test_handlers_are_restored():
    old_handlers = [signal.getsignal(number) for number in SIGNALS]
    with interrupts():
        assert signal.getsignal(signal.SIGINT) is not old_handlers[0]
    assert [signal.getsignal(number) for number in SIGNALS] == old_handlers
    assert signal.set_wakeup_fd(-1) == -1
    assert not [thread for thread in threading.enumerate() if thread.name == "haltsweep-signals"]
