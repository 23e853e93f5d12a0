"""Calls of a scheduler to a session with a real recorder and simulated workers."""

import threading

import pytest

from orchestrator.conductor.messages import Reply, Stop
from orchestrator.execution.session import NoAttempt, SchedulerTurn, Session
from orchestrator.execution.trial.trial_jobs import Attempt
from orchestrator.execution.trial.watchdog import hang_reason
from orchestrator.ledger.events import EventKind
from orchestrator.trials import DeathCause, OutcomeKind
from tests.support.processes.logs import Clock, MemoryLog, record
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.driving import DONE, measurement


class SessionBench:
    """A session on a log in memory, with the number of slots that the test sets."""

    def __init__(self, plan, num_slots=2):
        self.log = MemoryLog()
        self.recorder = record(plan, self.log)
        self.num_slots = num_slots
        self.stop = threading.Event()
        self.session = Session(self.recorder, self.stop)

    def next_attempt(self, key):
        return self.session.next_attempt(key, self.num_slots)

    def report(self, key, replies):
        """Return the stop decision for a worker that reports."""
        return self.session.report(key, replies)[0]

    def silent(self):
        """Return the runs whose workers must be killed."""
        return self.session.update([]).silent_keys

    def outcomes(self):
        return [event.payload["kind"] for event in self.log.of(EventKind.ENDED)]


def replies_at(attempt: Attempt, *steps: int) -> list[Reply]:
    return [Reply(measurement(attempt.trial, step)) for step in steps]


@pytest.fixture
def bench():
    return SessionBench(make_plan(2, trials_per_arm=2, seeds=()))


def test_trial_starts_only_in_a_free_slot(bench):
    assert isinstance(bench.next_attempt("a"), Attempt)
    assert isinstance(bench.next_attempt("b"), Attempt)
    assert bench.next_attempt("c") is NoAttempt.LATER
    assert len(bench.log.of(EventKind.PARAMS_ASSIGNED)) == 2
    bench.num_slots = 3
    assert isinstance(bench.next_attempt("c"), Attempt)
    assert bench.session.running == ("a", "b", "c")


def test_session_ends_after_its_last_trial():
    bench = SessionBench(make_plan(1, trials_per_arm=1, seeds=()))
    attempt = bench.next_attempt("a")
    assert bench.next_attempt("b") is NoAttempt.LATER, "a running trial may still be lost"
    last_reply = Reply(measurement(attempt.trial, 4), ended=DONE)
    assert bench.report("a", [*replies_at(attempt, 1, 2, 3), last_reply]) is None
    assert bench.session.running == ()
    assert bench.next_attempt("b") is NoAttempt.NEVER
    assert bench.recorder.is_finished


def test_refused_run_moves_unchanged_to_another_worker(bench):
    attempt = bench.next_attempt("a")
    bench.session.reassign("a")
    assert bench.session.running == ()
    assert bench.next_attempt("b") is attempt
    assert len(bench.log.of(EventKind.STARTED)) == 1


def test_pruned_trial_stops_once_and_later_replies_are_ignored():
    stopper = {"name": "percentile", "percentile": 0.1, "n_startup_trials": 1, "n_min_trials": 1}
    arms = [make_arm("one", sleep_s=0.0)]
    bench = SessionBench(make_plan(arms, trials_per_arm=6, seeds=(), stopper=stopper), num_slots=1)
    stops = []
    for key in "abcdef":
        attempt = bench.next_attempt(key)
        stop = bench.report(key, replies_at(attempt, 1, 2, 3))
        if stop is None:
            last_reply = Reply(measurement(attempt.trial, 4), ended=DONE)
            assert bench.report(key, [last_reply]) is None
            continue
        stops.append(stop)
        assert bench.report(key, replies_at(attempt, 4)) is None, "the session must send the stop once"
        assert bench.report(key, [Reply(ended=stop.outcome)]) is None
    assert {stop.kind for stop in stops} == {OutcomeKind.PRUNED}
    assert bench.outcomes().count("pruned") == len(stops)


def test_draining_stops_at_the_next_report_and_records_earlier_work(bench):
    attempt = bench.next_attempt("a")
    bench.stop.set()
    bench.session.check_stop()
    stop = bench.report("a", replies_at(attempt, 1, 2))
    assert isinstance(stop, Stop)
    assert stop.kind is OutcomeKind.STOPPED
    assert len(bench.log.of(EventKind.MEASURED)) == 2, "the session must record earlier work"
    assert bench.next_attempt("b") is NoAttempt.LATER
    bench.report("a", [Reply(checkpoint=2, ended=stop.outcome)])
    assert bench.next_attempt("b") is NoAttempt.NEVER
    assert bench.outcomes() == ["stopped"]


def test_trial_that_finishes_while_draining_is_finished(bench):
    attempt = bench.next_attempt("a")
    bench.stop.set()
    bench.session.check_stop()
    last_reply = Reply(measurement(attempt.trial, 4), ended=DONE)
    assert bench.report("a", [*replies_at(attempt, 1, 2, 3), last_reply]) is None
    assert bench.outcomes() == ["finished"]


def test_draining_stops_runs_that_no_worker_started(bench):
    bench.next_attempt("a")
    bench.next_attempt("b")
    bench.session.reassign("b")
    bench.stop.set()
    bench.session.check_stop()
    bench.session.end_unstarted()
    assert bench.outcomes() == ["stopped", "stopped"]
    assert bench.next_attempt("c") is NoAttempt.NEVER


def test_death_of_ray_loses_running_trials_once_and_moves_waiting_ones(bench):
    running, waiting = bench.next_attempt("a"), bench.next_attempt("b")
    assert bench.session.update(["a"]) == SchedulerTurn([], is_draining=False)
    bench.session.record_all_deaths("Ray ended")
    assert bench.session.running == ()
    (end,) = bench.log.of(EventKind.ENDED)
    assert (end.trial_id, end.payload["lost"]) == (running.trial_id, True)
    assert bench.next_attempt("c") is waiting
    assert bench.next_attempt("d").trial_id == running.trial_id


class TestSilence:
    """A worker that hangs, with a virtual clock."""

    @pytest.fixture
    def clock(self, bench):
        clock = Clock()
        bench.session.clock, bench.session.silence_s = clock, 60.0
        return clock

    def test_run_without_reports_is_silent_after_the_limit(self, bench, clock):
        attempt = bench.next_attempt("a")
        clock.now += 1000
        assert bench.silent() == [], "no worker has started the run"
        bench.session.update(["a"])
        clock.now += 50
        bench.session.update(["a"])
        bench.report("a", replies_at(attempt, 1))
        clock.now += 59
        assert bench.silent() == []
        clock.now += 2
        assert bench.silent() == ["a"]
        assert bench.silent() == [], "the session must kill the worker once"

    def test_silent_run_that_is_lost_times_out(self, bench, clock):
        attempt = bench.next_attempt("a")
        bench.session.update(["a"])
        clock.now += 61
        assert bench.silent() == ["a"]
        bench.session.record_death("a", "it was killed", DeathCause.TRIAL)
        (end_event,) = bench.log.of(EventKind.ENDED)
        assert end_event.payload["kind"] == "timed_out"
        assert end_event.payload["reason"] == hang_reason(60)
        assert bench.next_attempt("b").trial_id != attempt.trial_id
        assert bench.session.running == ("b",)
