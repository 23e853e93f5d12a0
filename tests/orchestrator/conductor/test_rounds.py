"""Seeds in rounds: waiting and decided arms do not depend on the order of ends or on interruptions."""

import random
import re

import numpy as np
import pytest

from orchestrator.conductor.conductor import Conductor
from orchestrator.plan.types import AnswerPlan
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.processes.logs import MemoryLog, content, record
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.driving import run_in_turn
from trainables.protocol import Measurement

FINISHED = Outcome(OutcomeKind.FINISHED, "ran to its end")
SEEDS = tuple(range(101, 109))
ARMS = ("base", "far", "near")
ARM_EFFECTS = {"base": 0.0, "far": 0.9, "near": 0.02}
NOISE = {arm: 0.02 * np.random.default_rng([5, place]).normal(size=8) for place, arm in enumerate(ARMS)}


def make_rounds_plan(**changes):
    answer = AnswerPlan(("test/score",), changes.pop("margin", None), 0.05, 2)
    options = {"trials_per_arm": 0, "seeds": SEEDS, "answer": answer} | changes
    return make_plan([make_arm(name) for name in ARMS], **options)


def score_of(trial):
    return ARM_EFFECTS[trial.arm] + float(NOISE[trial.arm][SEEDS.index(trial.seed)])


def finish_trial(conductor, trial, outcome=FINISHED):
    metrics = {"valid/score": 0.5, "test/score": score_of(trial.planned)}
    conductor.report(trial.trial_id, Measurement(1, 1.0, metrics))
    conductor.record_end(trial.trial_id, outcome)


def run_all(conductor, choose_next=lambda waiting: waiting[0], num_parallel=1):
    """Run all trials; `choose_next` selects the running trial that ends next. Return the seeds by arm."""
    running, seeds_by_arm = [], {arm: [] for arm in ARMS}
    while True:
        while len(running) < num_parallel and (trial := conductor.next_trial()) is not None:
            running.append(trial)
        if not running:
            return seeds_by_arm
        trial = choose_next(running)
        running.remove(trial)
        if trial.planned.phase == "confirm":
            seeds_by_arm[trial.planned.arm].append(trial.planned.seed)
        finish_trial(conductor, trial)


def test_only_arms_with_a_verdict_stop_early():
    conductor = Conductor(make_rounds_plan())
    seeds_by_arm = run_all(conductor)
    assert seeds_by_arm["base"] == seeds_by_arm["near"] == list(SEEDS)
    assert seeds_by_arm["far"] == list(SEEDS[:3])
    assert conductor.is_finished
    skipped_trials = conductor.take_unrunnable()
    assert [trial.planned.seed for trial, _ in skipped_trials] == list(SEEDS[3:])
    (skip,) = {outcome for _, outcome in skipped_trials}
    assert skip.kind is OutcomeKind.SKIPPED
    assert re.search("^far .* 3 of 8 .*test/score: higher", skip.reason)


def test_seeds_without_effect_give_no_early_verdict(monkeypatch):
    """A trainable that ignores its seed gives one result, however many seeds run."""
    for arm in ("base", "far"):
        monkeypatch.setitem(NOISE, arm, np.zeros(8))
    assert run_all(Conductor(make_rounds_plan()))["far"] == list(SEEDS)


@pytest.mark.parametrize("order", range(2))
def test_verdicts_do_not_depend_on_the_order_of_ends(order):
    rng = random.Random(order)
    seeds_by_arm = run_all(Conductor(make_rounds_plan()), rng.choice, num_parallel=3 + order)
    assert {arm: sorted(seeds) for arm, seeds in seeds_by_arm.items()} == {
        "base": list(SEEDS),
        "far": list(SEEDS[:3]),
        "near": list(SEEDS),
    }


def test_difference_within_the_margin_saves_seeds():
    seeds_by_arm = run_all(Conductor(make_rounds_plan(margin=0.8)))
    assert len(seeds_by_arm["near"]) < 8


@pytest.mark.parametrize("arm", ["far", "base"])
def test_failed_seed_withholds_the_early_verdict(arm):
    conductor = Conductor(make_rounds_plan())
    num_trials = dict.fromkeys(ARMS, 0)
    while (trial := conductor.next_trial()) is not None:
        num_trials[trial.planned.arm] += 1
        is_failed = (trial.planned.arm, trial.planned.seed) == (arm, SEEDS[1])
        outcome = Outcome(OutcomeKind.DIVERGED, "nan") if is_failed else FINISHED
        finish_trial(conductor, trial, outcome)
    assert num_trials["far"] == 8
    assert conductor.is_finished


def test_arm_with_a_failed_search_does_not_block_other_arms():
    conductor = Conductor(make_rounds_plan(trials_per_arm=1))
    for trial in [conductor.next_trial() for _ in ARMS]:
        conductor.report(trial.trial_id, Measurement(1, 1.0, {"valid/score": 0.5}))
        is_failed = trial.planned.arm == "near"
        conductor.record_end(trial.trial_id, Outcome(OutcomeKind.CRASHED, "no") if is_failed else FINISHED)
    seeds_by_arm = run_all(conductor)
    assert (len(seeds_by_arm["base"]), len(seeds_by_arm["far"]), len(seeds_by_arm["near"])) == (8, 3, 0)
    assert conductor.is_finished


def make_synthetic_plan():
    """Return a plan with an arm far below the baseline and an arm that diverges."""
    arms = [make_arm("base"), make_arm("far", steps=1), make_arm("weak", fault="diverge", fault_at=4)]
    answer = AnswerPlan(("valid/score",), None, 0.05, 2)
    return make_plan(arms, trials_per_arm=2, seeds=SEEDS, answer=answer, posthoc=({"model.shift": 0.5},))


def test_killed_session_continues_with_equal_decisions():
    plan = make_synthetic_plan()
    complete_log = MemoryLog()
    run_in_turn(record(plan, complete_log))
    assert OutcomeKind.SKIPPED in set(complete_log.outcomes().values())
    for num_events in [0, *complete_log.batches][::6]:
        log = MemoryLog(complete_log.written[:num_events])
        run_in_turn(record(plan, log))
        assert content(log.written) == content(complete_log.written), f"cut after {num_events} events"
