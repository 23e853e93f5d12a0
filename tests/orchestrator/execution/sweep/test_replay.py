"""Whatever happens to sessions and workers, the ledger carries the sweep to the same end."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.events import EventKind
from orchestrator.spec.section import Resources
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


def full_plan(sampler=TPE, stopper=ASHA):
    """Every phase, an arm that fails now and then, and one that always does."""
    arms = [
        make_arm("sound", SPACE),
        make_arm("weak", SPACE, fault="diverge", fault_at=4),
        make_arm("hopeless", fault="raise", fault_at=3),
    ]
    return make_plan(
        arms, trials_per_arm=5, sampler=sampler, stopper=stopper, posthoc=({"model.shift": 0.5},)
    )


@pytest.fixture(scope="module")
def undisturbed():
    """Log of a whole sequential run."""
    log = MemoryLog()
    run_in_turn(record(full_plan(), log))
    return log


def test_the_undisturbed_run_shows_every_kind_of_ending(undisturbed):
    plan = full_plan()
    assert set(undisturbed.outcomes()) == {each.trial_id for each in plan.trials}
    kinds = {OutcomeKind.FINISHED, OutcomeKind.PRUNED, OutcomeKind.DIVERGED, OutcomeKind.CRASHED}
    assert kinds <= set(undisturbed.outcomes().values())


def test_a_session_that_died_after_any_transaction_is_continued_to_the_same_end(undisturbed):
    expected = content(undisturbed.written)
    for cut in [0, *undisturbed.batches]:
        log = MemoryLog(undisturbed.written[:cut])
        run_in_turn(record(full_plan(), log))
        assert content(log.written) == expected, f"cut after {cut} events"


@pytest.mark.parametrize("sampler", ["random", "qmc"])
def test_any_prefix_at_all_leads_to_the_same_trials(sampler):
    """Even one that no transaction leaves behind."""
    plan = full_plan(sampler, stopper=None)
    whole = MemoryLog()
    run_in_turn(record(plan, whole))
    for cut in range(0, len(whole.written), 3):
        log = MemoryLog(whole.written[:cut])
        run_in_turn(record(plan, log))
        assert content(log.written) == content(whole.written), f"cut after {cut} events"


LATTICE = Space(
    (
        Dimension("model.x", Float(0.0, 1.0, step=0.25)),
        Dimension("model.unit", Choice(("token", "sequence"))),
        Dimension("model.threshold", Float(0.0, 1.0, step=0.5), (When("model.unit", ("token",)),)),
    ),
    (Constraint("model.x", "!=", 0.5),),
)


@pytest.mark.parametrize("sampler", ["grid", "bruteforce", "tests.support.specs.samplers.Nearby"])
def test_searches_of_a_lattice_are_continued_to_the_same_end(sampler):
    arms = [make_arm("sound", LATTICE), make_arm("weak", LATTICE, fault="diverge", fault_at=4)]
    plan = make_plan(arms, trials_per_arm=16, sampler=sampler, stopper=ASHA)
    whole = MemoryLog()
    run_in_turn(record(plan, whole))
    searched = {each.trial_id for each in plan.trials if each.phase == "search"}
    asked = [each for each in whole.of(EventKind.ASKED) if each.trial_id in searched]
    drawn = [str(each.payload["assignment"]) for each in asked]
    if sampler != "tests.support.specs.samplers.Nearby":
        assert set(Counter(drawn).values()) == {2}, "each combination once an arm"
    for cut in [0, *whole.batches][::5]:
        log = MemoryLog(whole.written[:cut])
        run_in_turn(record(plan, log))
        assert content(log.written) == content(whole.written), f"cut after {cut} events"


@pytest.mark.slow
@given(st.lists(st.integers(1, 25), min_size=1, max_size=6))
@examples(25)
def test_many_deaths_in_a_row_change_nothing(undisturbed, lives):
    """Each session writes so many transactions and dies."""
    log = MemoryLog()
    for life in lives:
        session = MemoryLog(log.written)
        run_in_turn(record(full_plan(), session))
        log = MemoryLog(session.written[: session.batches[min(life, len(session.batches)) - 1]])
    run_in_turn(record(full_plan(), log))
    assert content(log.written) == content(undisturbed.written)


class Sweep:
    """A sweep whose workers and sessions do what a list of numbers says."""

    def __init__(self) -> None:
        self.plan = full_plan(stopper=ASHA)
        self.log = MemoryLog()
        self.handed_out = Counter()
        self.open()

    def open(self) -> None:
        self.recorder = record(self.plan, self.log)
        self.workers: dict[str, Worker] = {}
        self.stale: list[Worker] = []

    def ask(self) -> bool:
        attempt = self.recorder.ask()
        if attempt is None:
            return False
        assert attempt.trial_id not in self.workers, "no trial is handed out while it runs"
        assert attempt.trial_id not in self.log.outcomes(), "no trial is handed out after its end"
        self.handed_out[attempt.trial_id] += 1
        assert attempt.token == self.handed_out[attempt.trial_id], "tokens count attempts"
        self.workers[attempt.trial_id] = Worker(self.recorder, attempt)
        return True

    def act(self, action: str, which: int) -> None:
        chosen = sorted(self.workers)[which % len(self.workers)] if self.workers else None
        if action == "ask" or chosen is None:
            self.ask()
        elif action == "advance":
            if self.workers[chosen].advance():
                del self.workers[chosen]
        elif action == "stop":
            self.workers.pop(chosen).stop()
        elif action == "lose":
            self.recorder.record_death(chosen, "node gone", DeathCause.TRIAL)
            self.stale.append(self.workers.pop(chosen))
        elif action == "stale" and self.stale:
            self.speak_late(self.stale[which % len(self.stale)])
        elif action == "die":
            self.open()

    def speak_late(self, worker: Worker) -> None:
        trial_id = worker.attempt.trial_id
        superseded = worker.attempt.token != self.handed_out[trial_id] or trial_id in self.log.outcomes()
        before = len(self.log.written)
        worker.advance()
        assert not (superseded and len(self.log.written) > before), "who was superseded may not write"

    def finish(self) -> None:
        while self.workers or self.ask():
            trial_id = next(iter(self.workers))
            if self.workers[trial_id].advance():
                del self.workers[trial_id]


ACTIONS = st.tuples(
    st.sampled_from(["ask", "ask", "advance", "advance", "advance", "stop", "lose", "stale", "die"]),
    st.integers(0, 5),
)


@given(st.lists(ACTIONS, max_size=60))
@examples(25)
def test_every_trial_ends_exactly_once_whatever_happens(actions):
    sweep = Sweep()
    for action, which in actions:
        sweep.act(action, which)
    sweep.finish()
    assert sweep.recorder.finished
    ends = [each for each in sweep.log.of(EventKind.ENDED) if OutcomeKind(each.payload["kind"]).final]
    assert sorted(each.trial_id for each in ends) == sorted(each.trial_id for each in sweep.plan.trials)
    asked = Counter(each.trial_id for each in sweep.log.of(EventKind.ASKED))
    assert set(asked.values()) == {1}, "one assignment a trial, for ever"
    progress = sweep.recorder.progress()
    assert [each.ended for each in progress] == [each.planned for each in progress]
    for trial_id in asked:
        steps = [each.payload["step"] for each in sweep.log.of(EventKind.MEASURED, trial_id)]
        assert steps == sorted(set(steps))


@given(st.lists(ACTIONS, max_size=40))
@examples(15)
def test_a_rebuilt_conductor_decides_like_the_one_that_lived(actions):
    """After any history, a new session asks for the same trials as the old one would."""
    sweep = Sweep()
    for action, which in actions:
        sweep.act(action, which)
    for worker in list(sweep.workers.values()):
        worker.stop()
    rebuilt = record(sweep.plan, MemoryLog(sweep.log.written))
    lived = {each.trial_id: each.trial for each in iter(sweep.recorder.ask, None)}
    assert {each.trial_id: each.trial for each in iter(rebuilt.ask, None)} == lived


def test_retries_are_not_endless():
    plan = make_plan(1, trials_per_arm=2, seeds=(), resources=Resources(retries=1))
    log = MemoryLog()
    recorder = record(plan, log)
    while (attempt := recorder.ask()) is not None:
        recorder.record_death(attempt.trial_id, "out of host memory", DeathCause.TRIAL)
    assert recorder.finished
    assert len(log.of(EventKind.STARTED)) == 4


@pytest.mark.parametrize("most_x", [0.5, -1.0])
def test_infeasible_trials_are_replaced_alike_after_any_cut(most_x):
    arms = [make_arm("some", SPACE, fault="infeasible", most_x=most_x), make_arm("sound", SPACE)]
    plan = make_plan(arms, trials_per_arm=3, sampler=TPE)
    whole = MemoryLog()
    run_in_turn(record(plan, whole))
    kinds = Counter(whole.outcomes().values())
    assert kinds[OutcomeKind.INFEASIBLE] > 0
    assert kinds.total() - kinds[OutcomeKind.INFEASIBLE] == len(plan.trials)
    for cut in [0, *whole.batches]:
        log = MemoryLog(whole.written[:cut])
        run_in_turn(record(plan, log))
        assert content(log.written) == content(whole.written), f"cut after {cut} events"
