"""Seeds in rounds: who waits, who is decided, who runs on; the same from any order and any prefix."""

import random
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.conductor.conductor import Conductor
from orchestrator.conductor.rounds import Rounds, decisions
from orchestrator.plan.types import AnswerPlan
from orchestrator.trials import Outcome, OutcomeKind, PlannedTrial
from tests.support.processes.logs import MemoryLog, content, record
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.driving import run_in_turn
from trainables.protocol import Measurement

DONE = Outcome(OutcomeKind.FINISHED, "ran to its end")
SEEDS = tuple(range(101, 109))
ARMS = ("base", "far", "near")
SHIFTS = {"base": 0.0, "far": 0.9, "near": 0.02}
NOISE = {arm: 0.02 * np.random.default_rng([5, place]).normal(size=8) for place, arm in enumerate(ARMS)}


def plan_of(**changes):
    answer = AnswerPlan(("test/score",), changes.pop("margin", None), 0.05, 2)
    given = {"trials_per_arm": 0, "seeds": SEEDS, "answer": answer} | changes
    return make_plan([make_arm(name) for name in ARMS], **given)


def value(planned):
    return SHIFTS[planned.arm] + float(NOISE[planned.arm][SEEDS.index(planned.seed)])


def finish(conductor, trial, outcome=DONE):
    named = {"valid/score": 0.5, "test/score": value(trial.planned)}
    conductor.report(trial.trial_id, Measurement(1, 1.0, named))
    conductor.record_end(trial.trial_id, outcome)


def run(conductor, choose=lambda waiting: waiting[0], at_once=1):
    """Run all; which running trial ends next is chosen. Returns seeds by arm that ran."""
    running, ran = [], {arm: [] for arm in ARMS}
    while True:
        while len(running) < at_once and (trial := conductor.next_trial()) is not None:
            running.append(trial)
        if not running:
            return ran
        trial = choose(running)
        running.remove(trial)
        if trial.planned.phase == "confirm":
            ran[trial.planned.arm].append(trial.planned.seed)
        finish(conductor, trial)


def test_a_decided_arm_stops_the_baseline_runs_all_and_the_undecided_goes_on():
    conductor = Conductor(plan_of())
    ran = run(conductor)
    assert ran["base"] == ran["near"] == list(SEEDS)
    assert ran["far"] == list(SEEDS[:3])
    assert conductor.finished
    skipped = conductor.take_unrunnable()
    assert [trial.planned.seed for trial, _ in skipped] == list(SEEDS[3:])
    assert {outcome for _, outcome in skipped} == {
        Outcome(OutcomeKind.SKIPPED, "far ended at the look after 3 of 8 seeds (test/score: higher)")
    }


def test_seeds_that_change_nothing_decide_nothing_early(monkeypatch):
    """A training that ignores its seed is one run, however often it is repeated."""
    for arm in ("base", "far"):
        monkeypatch.setitem(NOISE, arm, np.zeros(8))
    assert run(Conductor(plan_of()))["far"] == list(SEEDS)


def test_the_first_round_is_three_seeds_and_the_baseline_waits_for_nobody():
    conductor = Conductor(plan_of())
    ahead = list(iter(conductor.next_trial, None))
    seeds = {arm: [trial.planned.seed for trial in ahead if trial.planned.arm == arm] for arm in ARMS}
    assert seeds == {"base": list(SEEDS), "far": list(SEEDS[:3]), "near": list(SEEDS[:3])}


@pytest.mark.parametrize("order", range(6))
def test_no_order_in_which_trials_end_changes_what_is_decided(order):
    chosen = random.Random(order)
    ran = run(Conductor(plan_of()), chosen.choice, at_once=1 + order)
    assert {arm: sorted(seeds) for arm, seeds in ran.items()} == {
        "base": list(SEEDS),
        "far": list(SEEDS[:3]),
        "near": list(SEEDS),
    }


def test_no_difference_larger_than_the_margin_spares_seeds_too():
    ran = run(Conductor(plan_of(margin=0.8)))
    assert len(ran["near"]) < 8


@pytest.mark.parametrize("arm", ["far", "base"])
def test_a_failed_seed_withholds_the_decision(arm):
    conductor = Conductor(plan_of())
    ran = dict.fromkeys(ARMS, 0)
    while (trial := conductor.next_trial()) is not None:
        ran[trial.planned.arm] += 1
        failed = (trial.planned.arm, trial.planned.seed) == (arm, SEEDS[1])
        outcome = Outcome(OutcomeKind.DIVERGED, "nan") if failed else DONE
        finish(conductor, trial, outcome)
    assert ran["far"] == 8
    assert conductor.finished


def test_readings_again_of_seeds_that_never_ran_are_skipped():
    conductor = Conductor(plan_of(posthoc=({"model.shift": 0.5},)))
    run(conductor)
    skipped = [trial.planned for trial, _ in conductor.take_unrunnable()]
    assert {(each.arm, each.phase) for each in skipped} == {("far", "confirm"), ("far", "posthoc")}
    assert len(skipped) == 10
    assert conductor.finished


def test_looks_in_one_context_know_nothing_of_another():
    """Seeds that scatter wildly in others do not keep the first from being decided."""
    scatter = {"calm": 0.02, "wild": 50.0, "wilder": 60.0}
    plan = plan_of(answer=AnswerPlan(("test/score",), None, 0.05, 3))
    arms = [
        replace(make_arm(f"{label}-{context['data']}"), context=context, reference=reference)
        for label, reference_label in (("base", ""), ("far", "base"))
        for context in ({"data": name} for name in scatter)
        for reference in [f"{reference_label}-{context['data']}" if reference_label else ""]
    ]
    plan = replace(plan, arms=tuple(arms))
    rng = np.random.default_rng(3)
    confirmed = {
        (arm.name, seed): {
            "test/score": (0.9 if "far" in arm.name else 0.0) + scatter[arm.context["data"]] * rng.normal()
        }
        for arm in arms
        for seed in SEEDS
    }
    alone = replace(plan, arms=tuple(arm for arm in arms if arm.context["data"] == "calm"))
    found = decisions(plan, confirmed)
    assert found["far-calm"].seeds < len(SEEDS)
    assert found["far-calm"] == decisions(alone, confirmed)["far-calm"]
    rounds = Rounds(plan)
    last = [PlannedTrial("id", name, "confirm", 0, SEEDS[-1], 0) for name in ("base-wild", "far-wild")]
    assert [*map(rounds.may_run, last)] == [True, False], "each baseline runs all seeds"


def test_without_looks_all_seeds_run_at_once():
    plan = make_plan([make_arm(name) for name in ARMS], trials_per_arm=0, seeds=SEEDS)
    assert len(list(iter(Conductor(plan).next_trial, None))) == 24


def test_an_arm_whose_search_found_nothing_holds_nobody_up():
    conductor = Conductor(plan_of(trials_per_arm=1))
    for trial in [conductor.next_trial() for _ in ARMS]:
        conductor.report(trial.trial_id, Measurement(1, 1.0, {"valid/score": 0.5}))
        dead = trial.planned.arm == "near"
        conductor.record_end(trial.trial_id, Outcome(OutcomeKind.CRASHED, "no") if dead else DONE)
    ran = run(conductor)
    assert (len(ran["base"]), len(ran["far"]), len(ran["near"])) == (8, 3, 0)
    assert conductor.finished


def synthetic(**changes):
    """Trials of the synthetic workload: an arm far below the baseline, and one that diverges."""
    arms = [make_arm("base"), make_arm("far", steps=1), make_arm("weak", fault="diverge", fault_at=4)]
    answer = AnswerPlan(("valid/score",), None, 0.05, 2)
    given = {"trials_per_arm": 0, "seeds": SEEDS, "answer": answer, "posthoc": ({"model.shift": 0.5},)}
    return make_plan(arms, **given | changes)


@pytest.mark.parametrize(("trials", "each"), [pytest.param(0, 3, marks=pytest.mark.slow), (2, 4)])
def test_a_session_that_died_after_any_transaction_decides_the_same(trials, each):
    plan = synthetic(trials_per_arm=trials)
    whole = MemoryLog()
    run_in_turn(record(plan, whole))
    assert OutcomeKind.SKIPPED in set(whole.outcomes().values())
    for cut in [0, *whole.batches][::each]:
        log = MemoryLog(whole.written[:cut])
        run_in_turn(record(plan, log))
        assert content(log.written) == content(whole.written), f"cut after {cut} events"
