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


def make_cross_plan():
    plan = repeated_plan(1, (1, 2, 3, 4, 5, 6), cross=True)
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
    assert (crossings["arm-0"].kind, "1 seed" in crossings["arm-0"].text) == ("undecided", True)
