"""What the session makes of a scheduler's calls: the recorder is real, workers are imagined."""

import threading

import pytest

from orchestrator.conductor.messages import Reply, Stop
from orchestrator.execution.session import NoAttempt, SchedulerTurn, Session
from orchestrator.execution.trial.trial_jobs import Attempt
from orchestrator.execution.trial.watchdog import hang_reason
from orchestrator.ledger.events import EventKind
from orchestrator.spec.section import Resources
from orchestrator.trials import DeathCause, Outcome, OutcomeKind
from tests.support.processes.logs import Clock, MemoryLog, record
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.driving import DONE, measurement


class Bench:
    """A session on a log in memory, with as many slots as the test says."""

    def __init__(self, plan, num_slots=2):
        self.log = MemoryLog()
        self.recorder = record(plan, self.log)
        self.num_slots = num_slots
        self.stop = threading.Event()
        self.changes = 0
        self.session = Session(self.recorder, self.stop, self._changed)

    def next_attempt(self, key):
        return self.session.next_attempt(key, self.num_slots)

    def report(self, key, replies):
        """Return the stop decision for a worker that reports."""
        return self.session.report(key, replies)[0]

    def silent(self):
        """Return the runs whose workers must be killed."""
        return self.session.update([]).silent

    def _changed(self):
        self.changes += 1

    def outcomes(self):
        return [each.payload["kind"] for each in self.log.of(EventKind.ENDED)]


def measured(attempt: Attempt, *steps: int) -> list[Reply]:
    return [Reply(measurement(attempt.trial, step)) for step in steps]


@pytest.fixture
def bench():
    return Bench(make_plan(2, trials_per_arm=2, seeds=()))


def test_a_trial_is_asked_for_only_when_a_slot_is_free(bench):
    assert isinstance(bench.next_attempt("a"), Attempt)
    assert isinstance(bench.next_attempt("b"), Attempt)
    assert bench.next_attempt("c") is NoAttempt.LATER
    assert len(bench.log.of(EventKind.ASKED)) == 2
    bench.num_slots = 3
    assert isinstance(bench.next_attempt("c"), Attempt)
    assert bench.session.running == ("a", "b", "c")


def test_with_no_slot_at_all_it_waits(bench):
    bench.num_slots = 0
    assert bench.next_attempt("a") is NoAttempt.LATER
    assert not bench.log.of(EventKind.ASKED)


def test_it_is_over_when_everything_has_ended():
    bench = Bench(make_plan(1, trials_per_arm=1, seeds=()))
    attempt = bench.next_attempt("a")
    assert bench.next_attempt("b") is NoAttempt.LATER, "what runs may yet be lost"
    last = Reply(measurement(attempt.trial, 4), ended=DONE)
    assert bench.report("a", [*measured(attempt, 1, 2, 3), last]) is None
    assert bench.session.running == ()
    assert bench.next_attempt("b") is NoAttempt.NEVER
    assert bench.recorder.finished


def test_a_refused_run_goes_to_another_worker_as_it_is(bench):
    attempt = bench.next_attempt("a")
    bench.session.reassign("a")
    assert bench.session.running == ()
    assert bench.next_attempt("b") is attempt
    assert len(bench.log.of(EventKind.STARTED)) == 1


def test_a_lost_trial_is_handed_out_again_under_a_newer_token(bench):
    first = bench.next_attempt("a")
    bench.session.record_death("a", "it was killed", DeathCause.TRIAL)
    again = bench.next_attempt("b")
    assert (again.trial_id, again.token) == (first.trial_id, first.token + 1)
    (ended,) = bench.log.of(EventKind.ENDED)
    assert "it was killed" in ended.payload["reason"]


def test_a_trial_lost_too_often_has_crashed():
    bench = Bench(make_plan(1, trials_per_arm=1, seeds=(), resources=Resources(retries=2)))
    for key in "abc":
        bench.next_attempt(key)
        bench.session.record_death(key, "killed", DeathCause.TRIAL)
    assert bench.outcomes() == ["stopped", "stopped", "crashed"]
    assert bench.next_attempt("d") is NoAttempt.NEVER


def test_a_pruned_trial_is_stopped_once_and_its_further_work_ignored():
    stopper = {"name": "percentile", "percentile": 0.1, "n_startup_trials": 1, "n_min_trials": 1}
    arms = [make_arm("one", sleep_s=0.0)]
    bench = Bench(make_plan(arms, trials_per_arm=6, seeds=(), stopper=stopper), num_slots=1)
    stops = []
    for key in "abcdef":
        attempt = bench.next_attempt(key)
        stop = bench.report(key, measured(attempt, 1, 2, 3))
        if stop is None:
            last = Reply(measurement(attempt.trial, 4), ended=DONE)
            assert bench.report(key, [last]) is None
            continue
        stops.append(stop)
        assert bench.report(key, measured(attempt, 4)) is None, "it is told once"
        assert bench.report(key, [Reply(ended=stop.outcome)]) is None
    assert {stop.kind for stop in stops} == {OutcomeKind.PRUNED}
    assert bench.outcomes().count("pruned") == len(stops)


def test_a_pruned_trial_that_has_let_go_already_is_not_stopped_again():
    bench = Bench(make_plan(1, trials_per_arm=1, seeds=(), resources=Resources(minutes=0.01)), num_slots=1)
    attempt = bench.next_attempt("a")
    last = Reply(measurement(attempt.trial, 4), ended=DONE)
    assert bench.report("a", [*measured(attempt, 1, 2, 3), last]) is None
    assert bench.session.running == ()
    assert bench.outcomes() == ["timed_out"]
    steps = [each.payload["step"] for each in bench.log.of(EventKind.MEASURED)]
    assert steps == [1, 2], "the limit of 0.6 s is passed at step 2 of half a second each"


def test_draining_stops_at_the_next_report_and_keeps_what_was_done(bench):
    attempt = bench.next_attempt("a")
    bench.stop.set()
    bench.session.check_stop()
    stop = bench.report("a", measured(attempt, 1, 2))
    assert isinstance(stop, Stop)
    assert stop.kind is OutcomeKind.STOPPED
    assert len(bench.log.of(EventKind.MEASURED)) == 2, "work done before the worker heard of it counts"
    assert bench.next_attempt("b") is NoAttempt.LATER
    bench.report("a", [Reply(checkpoint=2, ended=stop.outcome)])
    assert bench.next_attempt("b") is NoAttempt.NEVER
    assert bench.outcomes() == ["stopped"]


def test_a_trial_that_finished_while_draining_is_finished(bench):
    attempt = bench.next_attempt("a")
    bench.stop.set()
    bench.session.check_stop()
    last = Reply(measurement(attempt.trial, 4), ended=DONE)
    assert bench.report("a", [*measured(attempt, 1, 2, 3), last]) is None
    assert bench.outcomes() == ["finished"]


def test_draining_gives_up_what_no_worker_has_begun(bench):
    bench.next_attempt("a")
    bench.next_attempt("b")
    bench.session.reassign("b")
    bench.stop.set()
    bench.session.check_stop()
    bench.session.end_unstarted()
    assert bench.outcomes() == ["stopped", "stopped"]
    assert bench.next_attempt("c") is NoAttempt.NEVER


def test_a_refused_run_is_not_forgotten_when_nothing_runs(bench):
    bench.next_attempt("a")
    bench.session.reassign("a")
    bench.stop.set()
    assert bench.next_attempt("b") is NoAttempt.NEVER
    assert bench.outcomes() == ["stopped"]


def test_a_report_is_one_transaction_announced_once(bench):
    attempt = bench.next_attempt("a")
    before = len(bench.log.batches)
    bench.report("a", measured(attempt, 1, 2))
    assert len(bench.log.batches) == before + 1
    bench.session.record_death("a", "killed", DeathCause.TRIAL)
    assert bench.changes == 3


def test_what_check_raises_ends_the_session(bench):
    def check():
        raise RuntimeError("lease lost")

    bench.session.check = check
    with pytest.raises(RuntimeError):
        bench.next_attempt("a")


def test_when_ray_ends_what_ran_is_lost_once_and_the_rest_goes_to_other_workers(bench):
    ran, waits = bench.next_attempt("a"), bench.next_attempt("b")
    assert bench.session.update(["a"]) == SchedulerTurn([], draining=False)
    bench.session.record_all_deaths("Ray ended")
    assert bench.session.running == ()
    (lost,) = bench.log.of(EventKind.ENDED)
    assert (lost.trial_id, lost.payload["lost"]) == (ran.trial_id, True)
    assert bench.next_attempt("c") is waits
    assert bench.next_attempt("d").trial_id == ran.trial_id


def test_a_ray_that_ends_while_draining_is_nobodys_loss(bench):
    bench.next_attempt("a")
    bench.stop.set()
    assert bench.session.update(["a"]) == SchedulerTurn([], draining=True)
    bench.session.record_all_deaths("Ray ended")
    (ended,) = bench.log.of(EventKind.ENDED)
    assert ended.payload == {"kind": "stopped", "reason": "the sweep was asked to stop"}


def test_an_outcome_of_the_worker_ends_the_run(bench):
    bench.next_attempt("a")
    bench.report("a", [Reply(ended=Outcome(OutcomeKind.OUT_OF_MEMORY, "no room"))])
    assert bench.outcomes() == ["out_of_memory"]
    assert bench.session.running == ()


class TestSilence:
    """A worker that hangs, on a virtual clock."""

    @pytest.fixture
    def clock(self, bench):
        clock = Clock()
        bench.session.clock, bench.session.silence_s = clock, 60.0
        return clock

    def test_a_run_is_silent_once_it_was_not_heard_of_for_too_long(self, bench, clock):
        attempt = bench.next_attempt("a")
        clock.now += 1000
        assert bench.silent() == [], "no worker has taken it"
        bench.session.update(["a"])
        clock.now += 50
        bench.session.update(["a"])
        bench.report("a", measured(attempt, 1))
        clock.now += 59
        assert bench.silent() == []
        clock.now += 2
        assert bench.silent() == ["a"]
        assert bench.silent() == [], "its worker is killed once"

    def test_a_silent_run_that_is_lost_has_timed_out(self, bench, clock):
        attempt = bench.next_attempt("a")
        bench.session.update(["a"])
        clock.now += 61
        assert bench.silent() == ["a"]
        bench.session.record_death("a", "it was killed", DeathCause.TRIAL)
        (ended,) = bench.log.of(EventKind.ENDED)
        assert ended.payload["kind"] == "timed_out"
        assert ended.payload["reason"] == hang_reason(60)
        assert bench.next_attempt("b").trial_id != attempt.trial_id
        assert bench.session.running == ("b",)

    def test_a_refused_run_is_waited_for_anew(self, bench, clock):
        bench.next_attempt("a")
        bench.session.update(["a"])
        bench.session.reassign("a")
        clock.now += 1000
        assert bench.silent() == []

    def test_ended_and_unknown_runs_are_never_silent(self, bench, clock):
        attempt = bench.next_attempt("a")
        bench.session.update(["a"])
        bench.report("a", [Reply(measurement(attempt.trial, 1), ended=DONE)])
        bench.session.update(["a"])
        clock.now += 1000
        assert bench.silent() == []

    def test_without_a_limit_nobody_is_silent(self, bench, clock):
        bench.session.silence_s = None
        bench.next_attempt("a")
        bench.session.update(["a"])
        clock.now += 1e9
        assert bench.silent() == []
