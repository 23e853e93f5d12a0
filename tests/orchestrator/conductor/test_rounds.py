"""Seeds in rounds: waiting and decided arms do not depend on the order of ends or on interruptions."""

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
    assert conductor.finished
    skipped_trials = conductor.take_unrunnable()
    assert [trial.planned.seed for trial, _ in skipped_trials] == list(SEEDS[3:])
    assert {outcome for _, outcome in skipped_trials} == {
        Outcome(OutcomeKind.SKIPPED, "far ended at the look after 3 of 8 seeds (test/score: higher)")
    }


def test_seeds_without_effect_give_no_early_verdict(monkeypatch):
    """A trainable that ignores its seed gives one result, however many seeds run."""
    for arm in ("base", "far"):
        monkeypatch.setitem(NOISE, arm, np.zeros(8))
    assert run_all(Conductor(make_rounds_plan()))["far"] == list(SEEDS)


def test_first_round_has_three_seeds_and_the_baseline_does_not_wait():
    conductor = Conductor(make_rounds_plan())
    started_trials = list(iter(conductor.next_trial, None))
    seeds = {
        arm: [trial.planned.seed for trial in started_trials if trial.planned.arm == arm] for arm in ARMS
    }
    assert seeds == {"base": list(SEEDS), "far": list(SEEDS[:3]), "near": list(SEEDS[:3])}


@pytest.mark.parametrize("order", range(6))
def test_verdicts_do_not_depend_on_the_order_of_ends(order):
    rng = random.Random(order)
    seeds_by_arm = run_all(Conductor(make_rounds_plan()), rng.choice, num_parallel=1 + order)
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
    assert conductor.finished


def test_re_evaluations_of_skipped_seeds_are_skipped():
    conductor = Conductor(make_rounds_plan(posthoc=({"model.shift": 0.5},)))
    run_all(conductor)
    skipped_trials = [trial.planned for trial, _ in conductor.take_unrunnable()]
    assert {(trial.arm, trial.phase) for trial in skipped_trials} == {("far", "confirm"), ("far", "posthoc")}
    assert len(skipped_trials) == 10
    assert conductor.finished


def test_looks_in_one_context_ignore_other_contexts():
    """Noisy seeds in other contexts do not prevent an early verdict."""
    spread_by_context = {"calm": 0.02, "wild": 50.0, "wilder": 60.0}
    plan = make_rounds_plan(answer=AnswerPlan(("test/score",), None, 0.05, 3))
    arms = [
        replace(make_arm(f"{label}-{context['data']}"), context=context, reference=reference)
        for label, reference_label in (("base", ""), ("far", "base"))
        for context in ({"data": name} for name in spread_by_context)
        for reference in [f"{reference_label}-{context['data']}" if reference_label else ""]
    ]
    plan = replace(plan, arms=tuple(arms))
    rng = np.random.default_rng(3)
    confirm_scores = {
        (arm.name, seed): {
            "test/score": (0.9 if "far" in arm.name else 0.0)
            + spread_by_context[arm.context["data"]] * rng.normal()
        }
        for arm in arms
        for seed in SEEDS
    }
    single_context_plan = replace(plan, arms=tuple(arm for arm in arms if arm.context["data"] == "calm"))
    early_decisions = decisions(plan, confirm_scores)
    assert early_decisions["far-calm"].seeds < len(SEEDS)
    assert early_decisions["far-calm"] == decisions(single_context_plan, confirm_scores)["far-calm"]
    rounds = Rounds(plan)
    last_trials = [PlannedTrial("id", name, "confirm", 0, SEEDS[-1], 0) for name in ("base-wild", "far-wild")]
    assert [*map(rounds.may_run, last_trials)] == [True, False], "each baseline runs all seeds"


def test_all_seeds_start_at_once_without_looks():
    plan = make_plan([make_arm(name) for name in ARMS], trials_per_arm=0, seeds=SEEDS)
    assert len(list(iter(Conductor(plan).next_trial, None))) == 24


def test_arm_with_a_failed_search_does_not_block_other_arms():
    conductor = Conductor(make_rounds_plan(trials_per_arm=1))
    for trial in [conductor.next_trial() for _ in ARMS]:
        conductor.report(trial.trial_id, Measurement(1, 1.0, {"valid/score": 0.5}))
        is_failed = trial.planned.arm == "near"
        conductor.record_end(trial.trial_id, Outcome(OutcomeKind.CRASHED, "no") if is_failed else FINISHED)
    seeds_by_arm = run_all(conductor)
    assert (len(seeds_by_arm["base"]), len(seeds_by_arm["far"]), len(seeds_by_arm["near"])) == (8, 3, 0)
    assert conductor.finished


def make_synthetic_plan(**changes):
    """Return a plan with an arm far below the baseline and an arm that diverges."""
    arms = [make_arm("base"), make_arm("far", steps=1), make_arm("weak", fault="diverge", fault_at=4)]
    answer = AnswerPlan(("valid/score",), None, 0.05, 2)
    options = {"trials_per_arm": 0, "seeds": SEEDS, "answer": answer, "posthoc": ({"model.shift": 0.5},)}
    return make_plan(arms, **options | changes)


@pytest.mark.parametrize(("trials", "stride"), [pytest.param(0, 3, marks=pytest.mark.slow), (2, 4)])
def test_killed_session_continues_with_equal_decisions(trials, stride):
    plan = make_synthetic_plan(trials_per_arm=trials)
    complete_log = MemoryLog()
    run_in_turn(record(plan, complete_log))
    assert OutcomeKind.SKIPPED in set(complete_log.outcomes().values())
    for num_events in [0, *complete_log.batches][::stride]:
        log = MemoryLog(complete_log.written[:num_events])
        run_in_turn(record(plan, log))
        assert content(log.written) == content(complete_log.written), f"cut after {num_events} events"
