"""Attribution at given settings: rows of their own beside verdicts that stay what they were."""

import math
from dataclasses import replace
from statistics import fmean, stdev

import pytest
from scipy import stats

from orchestrator.plan.types import AnswerPlan
from orchestrator.report.results.summary import summarise
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.test_repeats import OUTCOME, record
from tests.support.sweeps.repeated import repeated_plan
from trainables.metrics import Metric
from trainables.protocol import Measurement

GAIN = {"arm-1": 0.3, "arm-0": 0.0}
"""Of each arm at all settings; the settings of arm-1 give 1 more than those of arm-0."""


def score(planned, plan):
    of = planned.settings_of or planned.arm
    noise = 0.02 * math.sin(7 * plan.confirm.seeds.index(planned.seed) + 3 * len(planned.phase))
    return GAIN[planned.arm] + (of == "arm-1") + noise


def measured(plan, each, **changed):
    made = record(plan, each)
    if each.phase in {"confirm", "cross"}:
        made = replace(made, last=Measurement(1, 1.0, {OUTCOME: score(each, plan)}))
    return replace(made, **changed)


def made(repeats=1, seeds=(1, 2, 3, 4, 5, 6), **given):
    plan = repeated_plan(repeats, seeds, cross=True, **given)
    return replace(plan, answer=AnswerPlan((OUTCOME,), None, 0.05, 1))


def differences(plan, arm_of, reference_of):
    """By seed; each side is an arm and whose settings it has."""
    sides = [
        {
            trial.seed: score(trial, plan)
            for trial in plan.trials
            if trial.arm == arm and trial.phase != "search" and (trial.settings_of or trial.arm) == of
        }
        for arm, of in (arm_of, reference_of)
    ]
    return [sides[0][seed] - sides[1][seed] for seed in plan.confirm.seeds]


@pytest.mark.parametrize("of", ["arm-0", "arm-1"])
def test_both_arms_are_compared_at_the_settings_of_one(of):
    plan = made()
    report = summarise(plan, [measured(plan, trial) for trial in plan.trials])
    found = next(crossing for crossing in report.crossed if crossing.settings_of == of)
    expected = differences(plan, ("arm-1", of), ("arm-0", of))
    half = stats.t.isf(0.05 / (2 * 2), 5) * stdev(expected) / math.sqrt(6)
    assert found.difference.mean == pytest.approx(fmean(expected))
    assert found.difference.high - found.difference.mean == pytest.approx(half), "a family of two"
    assert (found.kind, found.family, found.wins.share) == ("better", 2, 1.0)
    assert found.seeds == "6 of 6 seeds finished"


def test_the_unit_is_the_repeat_where_searches_are_repeated():
    plan = made(5, (1, 2))
    report = summarise(plan, [measured(plan, trial) for trial in plan.trials])
    at_baseline = next(crossing for crossing in report.crossed if crossing.settings_of == "arm-0")
    by_seed = differences(plan, ("arm-1", "arm-0"), ("arm-0", "arm-0"))
    means = [fmean(by_seed[2 * repeat : 2 * repeat + 2]) for repeat in range(5)]
    assert at_baseline.difference.n == 5
    assert at_baseline.difference.mean == pytest.approx(fmean(means))
    assert at_baseline.seeds == "5 of 5 repeats finished"


def test_a_seed_that_failed_or_has_not_run_leaves_the_row_open():
    plan = made()
    at_baseline = [trial for trial in plan.trials if trial.phase == "cross" and trial.settings_of == "arm-0"]
    records = [measured(plan, trial) for trial in plan.trials if trial != at_baseline[0]]
    waiting = {crossing.settings_of: crossing for crossing in summarise(plan, records).crossed}
    assert (waiting["arm-0"].kind, waiting["arm-0"].p) == ("undecided", None)
    assert waiting["arm-1"].kind == "better"
    failed = [*records, measured(plan, at_baseline[0], outcome=OutcomeKind.DIVERGED, last=None)]
    found = {crossing.settings_of: crossing for crossing in summarise(plan, failed).crossed}
    assert found["arm-0"].text == "undecided: 1 seed failed"
    assert found["arm-0"].seeds == "5 of 6 seeds finished"


def test_a_comparison_on_other_test_examples_has_no_verdict_and_leaves_the_others_theirs():
    plan = made()

    def digest(each):
        return "b" * 32 if each.phase == "cross" and each.settings_of == "arm-0" else "a" * 32

    records = [
        measured(plan, trial, attributes={f"{OUTCOME.partition('/')[0]}/digest": digest(trial)})
        for trial in plan.trials
    ]
    report = summarise(plan, records)
    found = {crossing.settings_of: crossing for crossing in report.crossed}
    at_baseline = found["arm-0"]
    assert (at_baseline.kind, at_baseline.p, at_baseline.difference.n) == ("undecided", None, 6)
    assert "digest bbbbbbbb" in at_baseline.text
    assert at_baseline.text in at_baseline.line
    assert found["arm-1"].kind == "better"
    assert report.verdicts[0].kind == "better"


def test_a_cost_that_settings_fix_is_not_compared_at_given_settings():
    depth = Metric("depth", is_cost=True, high_from="depth_bound", moves_with="depth")
    plan = replace(made(), metrics=(depth,), answer=AnswerPlan(("iid/depth",), None, 0.05, 1))
    records = [
        replace(each, last=Measurement(1, 1.0, {"iid/depth": value, "iid/depth_bound": 5.0}))
        for planned in plan.trials
        for each in [measured(plan, planned)]
        for value in [5.0 if planned.arm == "arm-1" else 3.0 + 0.1 * (planned.seed % 7)]
        if planned.phase in {"confirm", "cross"}
    ]
    found = summarise(plan, records).crossed
    assert [(effect.kind, effect.p) for effect in found] == [("undecided", None)] * 2
    assert all(each.text.startswith("fixed by construction: iid/depth of arm-1") for each in found)
