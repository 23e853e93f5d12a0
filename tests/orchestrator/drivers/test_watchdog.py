"""How long a trial may be silent, and the timer of this process, which leaves no trace."""

import io
import pdb  # noqa: T100 - it is what is tested
import signal
import sys
import threading
import time

import pytest

from orchestrator.drivers.watchdog import GRACE_S, TrialHangs, heard_within, silence_limit
from orchestrator.drivers.worker_outcomes import outcome_of
from orchestrator.spec.section import Resources
from orchestrator.trials import OutcomeKind


def test_the_limit_is_that_of_the_trial_and_a_grace():
    assert silence_limit(Resources(minutes=2)) == 120 + GRACE_S
    assert silence_limit(Resources(minutes=2, pack=3)) == 360 + GRACE_S, "work is that of all"


def test_only_the_spec_limits_silence_and_the_shortest_limit_counts():
    assert silence_limit(Resources()) is None
    assert silence_limit(Resources(silent_minutes=1.5)) == 90
    assert silence_limit(Resources(silent_minutes=1, minutes=2)) == 60
    assert silence_limit(Resources(silent_minutes=60, minutes=2)) == 120 + GRACE_S


def test_who_stands_in_a_debugger_is_not_silent():
    class Thinking(io.StringIO):
        """Somebody who takes longer than the limit before they type."""

        def readline(self, size=-1):
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                time.sleep(0.01)
            return "continue\n"

    shown = io.StringIO()
    debugger = pdb.Pdb(stdin=Thinking(), stdout=shown, nosigint=True, readrc=False)
    debugger.reset()
    with heard_within(0.05):
        debugger.interaction(sys._getframe(), None)
    assert "(Pdb)" in shown.getvalue()


def test_what_takes_too_long_is_ended():
    began = time.monotonic()
    with (
        pytest.raises(
            TrialHangs,
            match=r"must report within resources.silent_minutes .* got nothing for 0 s; unless it hangs, rai",
        ),
        heard_within(0.1),
    ):
        time.sleep(100)
    assert time.monotonic() - began < 90
    assert outcome_of(TrialHangs("quiet")).kind is OutcomeKind.TIMED_OUT


@pytest.mark.parametrize("limit", [None, 100.0])
def test_what_ends_in_time_leaves_handlers_and_timers_as_they_were(limit):
    rung = []
    handler = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with heard_within(limit):
            assert not rung
        until = time.monotonic() + 60
        while not rung and time.monotonic() < until:
            time.sleep(0.01)
        assert rung == [True], "somebody else's alarm still rings"
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, left, interval)


def test_outside_the_main_thread_there_is_no_timer():
    finished = []

    def work():
        with heard_within(0.01):
            time.sleep(0.1)
        finished.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert finished == [True]
