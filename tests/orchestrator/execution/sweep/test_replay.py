"""The ledger leads a sweep to the same end whatever happens to its sessions and workers."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.events import EventKind
from orchestrator.trials import DeathCause, OutcomeKind
from search_spaces.dimensions import Choice, Constraint, Dimension, Float, Space, When
from tests.support.processes.logs import MemoryLog, content, record
from tests.support.specs.examples import examples
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.driving import Worker, run_in_turn

SPACE = Space(
    (
        Dimension("model.x", Float(0.0, 1.0)),
        Dimension("model.unit", Choice(("token", "sequence"))),
        Dimension("model.threshold", Float(0.0, 1.0), (When("model.unit", ("token",)),)),
    ),
    (Constraint("model.x", "!=", 0.5),),
)
ASHA = {"name": "asha", "grace_steps": 1, "reduction": 2}
TPE = {"name": "tpe", "n_startup_trials": 2}


def make_full_plan():
    """Make a plan with every phase, an arm that fails sometimes, and an arm that always fails."""
    arms = [
        make_arm("sound", SPACE),
        make_arm("weak", SPACE, fault="diverge", fault_at=4),
        make_arm("hopeless", fault="raise", fault_at=3),
    ]
    return make_plan(arms, trials_per_arm=5, sampler=TPE, stopper=ASHA, posthoc=({"model.shift": 0.5},))


def test_session_continues_after_a_kill_behind_any_transaction():
    undisturbed_log = MemoryLog()
    run_in_turn(record(make_full_plan(), undisturbed_log))
    kinds = {OutcomeKind.FINISHED, OutcomeKind.PRUNED, OutcomeKind.DIVERGED, OutcomeKind.CRASHED}
    assert kinds <= set(undisturbed_log.outcomes().values())
    expected = content(undisturbed_log.written)
    for cut in [0, *undisturbed_log.batches]:
        log = MemoryLog(undisturbed_log.written[:cut])
        run_in_turn(record(make_full_plan(), log))
        assert content(log.written) == expected, f"cut after {cut} events"


class SimulatedSweep:
    """A sweep whose workers and sessions act as a list of numbers says."""

    def __init__(self) -> None:
        self.plan = make_full_plan()
        self.log = MemoryLog()
        self.num_attempts = Counter()
        self.open()

    def open(self) -> None:
        self.recorder = record(self.plan, self.log)
        self.workers: dict[str, Worker] = {}
        self.stale: list[Worker] = []

    def start_trial(self) -> bool:
        attempt = self.recorder.next_attempt()
        if attempt is None:
            return False
        assert attempt.trial_id not in self.workers, "a running trial must not start again"
        assert attempt.trial_id not in self.log.outcomes(), "an ended trial must not start again"
        self.num_attempts[attempt.trial_id] += 1
        assert attempt.token == self.num_attempts[attempt.trial_id], "tokens must count attempts"
        self.workers[attempt.trial_id] = Worker(self.recorder, attempt)
        return True

    def act(self, action: str, index: int) -> None:
        trial_id = sorted(self.workers)[index % len(self.workers)] if self.workers else None
        if action == "ask" or trial_id is None:
            self.start_trial()
        elif action == "advance":
            if self.workers[trial_id].advance():
                del self.workers[trial_id]
        elif action == "stop":
            self.workers.pop(trial_id).stop()
        elif action == "lose":
            self.recorder.record_death(trial_id, "node gone", DeathCause.TRIAL)
            self.stale.append(self.workers.pop(trial_id))
        elif action == "stale" and self.stale:
            self.advance_stale_worker(self.stale[index % len(self.stale)])
        elif action == "die":
            self.open()

    def advance_stale_worker(self, worker: Worker) -> None:
        trial_id = worker.attempt.trial_id
        is_superseded = worker.attempt.token != self.num_attempts[trial_id] or trial_id in self.log.outcomes()
        num_events = len(self.log.written)
        worker.advance()
        assert not (is_superseded and len(self.log.written) > num_events), (
            "a superseded worker must not write"
        )

    def finish(self) -> None:
        while self.workers or self.start_trial():
            trial_id = next(iter(self.workers))
            if self.workers[trial_id].advance():
                del self.workers[trial_id]


ACTIONS = st.tuples(
    st.sampled_from(["ask", "ask", "advance", "advance", "advance", "stop", "lose", "stale", "die"]),
    st.integers(0, 5),
)


@given(st.lists(ACTIONS, max_size=60))
@examples(25)
def test_every_trial_ends_exactly_once(actions):
    sweep = SimulatedSweep()
    for action, index in actions:
        sweep.act(action, index)
    sweep.finish()
    assert sweep.recorder.is_finished
    end_events = [
        event for event in sweep.log.of(EventKind.ENDED) if OutcomeKind(event.payload["kind"]).is_final
    ]
    assert sorted(event.trial_id for event in end_events) == sorted(
        trial.trial_id for trial in sweep.plan.trials
    )
    num_asked = Counter(event.trial_id for event in sweep.log.of(EventKind.PARAMS_ASSIGNED))
    assert set(num_asked.values()) == {1}, "each trial must be asked for once"
    progress = sweep.recorder.progress()
    assert [arm_progress.ended for arm_progress in progress] == [
        arm_progress.planned for arm_progress in progress
    ]
    for trial_id in num_asked:
        steps = [event.payload["step"] for event in sweep.log.of(EventKind.MEASURED, trial_id)]
        assert steps == sorted(set(steps))


@given(st.lists(ACTIONS, max_size=40))
@examples(15)
def test_restored_conductor_decides_like_the_original(actions):
    """After any history, a new session starts the same trials as the old session would start."""
    sweep = SimulatedSweep()
    for action, index in actions:
        sweep.act(action, index)
    for worker in list(sweep.workers.values()):
        worker.stop()
    new_recorder = record(sweep.plan, MemoryLog(sweep.log.written))
    expected = {attempt.trial_id: attempt.trial for attempt in iter(sweep.recorder.next_attempt, None)}
    assert {attempt.trial_id: attempt.trial for attempt in iter(new_recorder.next_attempt, None)} == expected


def test_infeasible_trials_are_replaced_equally_after_any_cut():
    arms = [make_arm("some", SPACE, fault="infeasible", most_x=0.5), make_arm("sound", SPACE)]
    plan = make_plan(arms, trials_per_arm=3, sampler=TPE)
    complete_log = MemoryLog()
    run_in_turn(record(plan, complete_log))
    kinds = Counter(complete_log.outcomes().values())
    assert kinds[OutcomeKind.INFEASIBLE] > 0
    assert kinds.total() - kinds[OutcomeKind.INFEASIBLE] == len(plan.trials)
    for cut in [0, *complete_log.batches]:
        log = MemoryLog(complete_log.written[:cut])
        run_in_turn(record(plan, log))
        assert content(log.written) == content(complete_log.written), f"cut after {cut} events"
