"""Attribution at given settings: separate rows that do not change the verdicts."""

import math
from dataclasses import replace
from statistics import fmean, stdev

import pytest
from scipy import stats

from orchestrator.plan.types import AnswerPlan
from orchestrator.report.results.summary import summarise
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.test_repeats import OUTCOME, make_repeat_record
from tests.support.sweeps.repeated import repeated_plan
from trainables.metrics import Metric
from trainables.protocol import Measurement

ARM_GAIN = {"arm-1": 0.3, "arm-0": 0.0}
"""Score of each arm at any settings; the settings of arm-1 add 1."""


def score_of(trial, plan):
    settings_arm = trial.settings_of or trial.arm
    noise = 0.02 * math.sin(7 * plan.confirm.seeds.index(trial.seed) + 3 * len(trial.phase))
    return ARM_GAIN[trial.arm] + (settings_arm == "arm-1") + noise


def make_measured_record(plan, trial, **fields):
    trial_record = make_repeat_record(plan, trial)
    if trial.phase in {"confirm", "cross"}:
        trial_record = replace(trial_record, last=Measurement(1, 1.0, {OUTCOME: score_of(trial, plan)}))
    return replace(trial_record, **fields)


def make_cross_plan(repeats=1, seeds=(1, 2, 3, 4, 5, 6), **options):
    plan = repeated_plan(repeats, seeds, cross=True, **options)
    return replace(plan, answer=AnswerPlan((OUTCOME,), None, 0.05, 1))


def differences_by_seed(plan, arm_side, reference_side):
    """Return the score differences; each side is an arm and the arm whose settings it has."""
    scores = [
        {
            trial.seed: score_of(trial, plan)
            for trial in plan.trials
            if trial.arm == arm
            and trial.phase != "search"
            and (trial.settings_of or trial.arm) == settings_arm
        }
        for arm, settings_arm in (arm_side, reference_side)
    ]
    return [scores[0][seed] - scores[1][seed] for seed in plan.confirm.seeds]


@pytest.mark.parametrize("settings_arm", ["arm-0", "arm-1"])
def test_arms_are_compared_at_the_settings_of_one_arm(settings_arm):
    plan = make_cross_plan()
    report = summarise(plan, [make_measured_record(plan, trial) for trial in plan.trials])
    settings_crossing = next(crossing for crossing in report.crossed if crossing.settings_of == settings_arm)
    expected = differences_by_seed(plan, ("arm-1", settings_arm), ("arm-0", settings_arm))
    half_width = stats.t.isf(0.05 / (2 * 2), 5) * stdev(expected) / math.sqrt(6)
    assert settings_crossing.difference.mean == pytest.approx(fmean(expected))
    assert settings_crossing.difference.high - settings_crossing.difference.mean == pytest.approx(
        half_width
    ), "a family of two"
    assert (settings_crossing.kind, settings_crossing.family, settings_crossing.wins.share) == (
        "better",
        2,
        1.0,
    )
    assert settings_crossing.seeds == "6 of 6 seeds finished"


def test_repeated_searches_are_compared_by_repeat():
    plan = make_cross_plan(5, (1, 2))
    report = summarise(plan, [make_measured_record(plan, trial) for trial in plan.trials])
    baseline_crossing = next(crossing for crossing in report.crossed if crossing.settings_of == "arm-0")
    seed_differences = differences_by_seed(plan, ("arm-1", "arm-0"), ("arm-0", "arm-0"))
    means = [fmean(seed_differences[2 * repeat : 2 * repeat + 2]) for repeat in range(5)]
    assert baseline_crossing.difference.n == 5
    assert baseline_crossing.difference.mean == pytest.approx(fmean(means))
    assert baseline_crossing.seeds == "5 of 5 repeats finished"


def test_failed_or_open_seed_leaves_the_row_undecided():
    plan = make_cross_plan()
    baseline_trials = [
        trial for trial in plan.trials if trial.phase == "cross" and trial.settings_of == "arm-0"
    ]
    records = [make_measured_record(plan, trial) for trial in plan.trials if trial != baseline_trials[0]]
    unfinished_crossings = {crossing.settings_of: crossing for crossing in summarise(plan, records).crossed}
    assert (unfinished_crossings["arm-0"].kind, unfinished_crossings["arm-0"].p) == ("undecided", None)
    assert unfinished_crossings["arm-1"].kind == "better"
    records_with_failure = [
        *records,
        make_measured_record(plan, baseline_trials[0], outcome=OutcomeKind.DIVERGED, last=None),
    ]
    crossings = {crossing.settings_of: crossing for crossing in summarise(plan, records_with_failure).crossed}
    assert crossings["arm-0"].text == "undecided: 1 seed failed"
    assert crossings["arm-0"].seeds == "5 of 6 seeds finished"


def test_comparison_on_different_test_examples_has_no_verdict():
    plan = make_cross_plan()

    def test_digest(cross_trial):
        return "b" * 32 if cross_trial.phase == "cross" and cross_trial.settings_of == "arm-0" else "a" * 32

    records = [
        make_measured_record(
            plan, trial, attributes={f"{OUTCOME.partition('/')[0]}/digest": test_digest(trial)}
        )
        for trial in plan.trials
    ]
    report = summarise(plan, records)
    crossings = {crossing.settings_of: crossing for crossing in report.crossed}
    crossing_at_baseline = crossings["arm-0"]
    assert (crossing_at_baseline.kind, crossing_at_baseline.p, crossing_at_baseline.difference.n) == (
        "undecided",
        None,
        6,
    )
    assert "digest bbbbbbbb" in crossing_at_baseline.text
    assert crossing_at_baseline.text in crossing_at_baseline.line
    assert crossings["arm-1"].kind == "better"
    assert report.verdicts[0].kind == "better"


def test_cost_that_settings_fix_is_not_compared():
    depth = Metric("depth", is_cost=True, high_from="depth_bound", moves_with="depth")
    plan = replace(make_cross_plan(), metrics=(depth,), answer=AnswerPlan(("iid/depth",), None, 0.05, 1))
    records = [
        replace(measured_record, last=Measurement(1, 1.0, {"iid/depth": value, "iid/depth_bound": 5.0}))
        for trial in plan.trials
        for measured_record in [make_measured_record(plan, trial)]
        for value in [5.0 if trial.arm == "arm-1" else 3.0 + 0.1 * (trial.seed % 7)]
        if trial.phase in {"confirm", "cross"}
    ]
    crossings = summarise(plan, records).crossed
    assert [(effect.kind, effect.p) for effect in crossings] == [("undecided", None)] * 2
    assert all(
        crossing.text.startswith("fixed by construction: iid/depth of arm-1") for crossing in crossings
    )
