"""Seeds of an arm that share a worker of Ray: the session's books of them, and real workers."""

import threading

import pytest

from orchestrator.conductor.messages import Reply
from orchestrator.drivers.inline import run_inline
from orchestrator.drivers.session import NoAttempt, Session, member
from orchestrator.drivers.supervisor import run_ray
from orchestrator.ledger.events import EventKind
from orchestrator.trials import OutcomeKind
from tests.support import packed
from tests.support.driving import DONE, measurement
from tests.support.logs import Clock, MemoryLog, record
from tests.support.plans import make_plan
from trainables.training import NONDETERMINISTIC

SEEDS = (1, 2, 3, 4, 5)


class Bench:
    """A session that offers three seeds a run, on a log in memory."""

    def __init__(self, slots=2, **keywords):
        self.log = MemoryLog()
        self.recorder = record(make_plan(2, trials_per_arm=0, seeds=SEEDS), self.log)
        self.session = Session(self.recorder, lambda: slots, threading.Event(), pack=3, **keywords)

    def offer(self, key):
        """Trials of one run, by arm and seed."""
        first = self.session.offer(key)
        if isinstance(first, NoAttempt):
            return first
        found = [first]
        while (other := self.session.offer_beside(key)) is not None:
            found.append(other)
        return [(each.trial.planned.arm, each.trial.planned.seed) for each in found]


def test_a_run_gets_seeds_of_one_arm_and_is_counted_once():
    bench = Bench()
    assert bench.offer("a") == [("arm-0", 1), ("arm-0", 2), ("arm-0", 3)]
    assert bench.offer("b") == [("arm-1", 1), ("arm-1", 2), ("arm-1", 3)]
    assert bench.offer("c") is NoAttempt.LATER
    assert bench.session.running == ("a", "a+1", "a+2", "b", "b+1", "b+2")


def test_search_trials_run_alone():
    bench = Bench()
    bench.recorder = record(make_plan(1, trials_per_arm=3, seeds=SEEDS), MemoryLog())
    bench.session.recorder = bench.recorder
    assert len(bench.offer("a")) == 1


def test_each_is_heard_and_stopped_for_itself():
    bench = Bench()
    bench.offer("a")
    trial = bench.session._running["a+1"].trial
    assert bench.session.heard(member("a", 1), [Reply(measurement(trial, 1), ended=DONE)]) is None
    assert bench.session.running == ("a", "a+2")
    assert list(bench.log.outcomes()) == [trial.trial_id]


def test_with_their_worker_all_are_lost_and_go_on_alone_until_they_progress():
    bench = Bench(slots=9)
    bench.offer("a")
    bench.session.turn(["a"])
    bench.session.lost("a", "killed")
    assert [each.payload["lost"] for each in bench.log.of(EventKind.ENDED)] == [True] * 3
    assert bench.offer("b") == [("arm-0", 1)]
    assert bench.offer("c") == [("arm-0", 2)]
    trial = bench.session._running["c"].trial
    bench.session.heard("c", [Reply(measurement(trial, 1))])
    bench.session.lost("c", "killed again")
    assert bench.offer("d") == [("arm-0", 3)]


def test_those_that_no_worker_took_are_offered_together_again():
    bench = Bench()
    offered = bench.offer("a")
    bench.session.refused("a")
    assert bench.offer("b") == offered
    assert len(bench.log.of(EventKind.STARTED)) == 3


def test_of_several_that_are_silent_nobody_knows_which_hangs():
    clock = Clock()
    bench = Bench(silence_s=60.0, clock=clock)
    bench.offer("a")
    bench.session.turn(["a"])
    clock.now += 61
    assert list(bench.session.turn(["a"]).silent) == ["a"]
    bench.session.lost("a", "killed")
    assert [each.payload["kind"] for each in bench.log.of(EventKind.ENDED)] == [OutcomeKind.STOPPED] * 3
    assert bench.offer("b") == [("arm-0", 1)]
    bench.session.turn(["b"])
    clock.now += 61
    assert list(bench.session.turn(["b"]).silent) == ["b"]
    bench.session.lost("b", "killed")
    assert list(bench.log.outcomes().values()) == [OutcomeKind.TIMED_OUT]


def curves(log, plan):
    seeds = {each.trial_id: (each.arm, each.seed) for each in plan.trials}
    return {
        (seeds[event.trial_id], event.payload["step"]): {
            name: value for name, value in event.payload["metrics"].items() if name not in NONDETERMINISTIC
        }
        for event in log.of(EventKind.MEASURED)
    }


@pytest.mark.slow
def test_workers_of_ray_train_seeds_together_whatever_becomes_of_one(tmp_path):
    """One diverges, one kills the process of all once."""
    plan = packed.plan((1, 2, 3, 4), arms=2, faults={"2": "diverge", "3": "kill"})
    (tmp_path / "data").mkdir()
    log = MemoryLog()
    recorder = record(plan, log, root=tmp_path / "together")
    run_ray(recorder, packed.PATH, resources=plan.resources, data_dir=tmp_path / "data", num_cpus=2)
    assert recorder.finished
    seeds = {each.trial_id: each.seed for each in plan.trials}
    kinds = [(seeds[trial_id], kind) for trial_id, kind in log.outcomes().items()]
    assert sorted(kinds) == sorted(
        2 * [(seed, OutcomeKind.DIVERGED if seed == 2 else OutcomeKind.FINISHED) for seed in (1, 2, 3, 4)]
    )
    alone = MemoryLog()
    run_inline(record(plan, alone, root=tmp_path / "apart"), packed.PATH, data_dir=tmp_path / "data")
    expected = curves(alone, plan)
    found = curves(log, plan)
    assert found.keys() == expected.keys()
    for key, metrics in expected.items():
        assert found[key] == pytest.approx(metrics, rel=1e-4, abs=1e-5)
