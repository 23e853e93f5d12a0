"""An arm that wins only by higher cost is disclosed; no value is extrapolated."""

import re
from dataclasses import replace

import pytest

from orchestrator.plan.types import AnswerPlan, ConfirmPlan
from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.comparisons.equal_cost import interpolate
from orchestrator.report.results.summary import summarise
from orchestrator.report.writers.write import as_markdown_report
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.comparisons.test_answers import (
    METRICS,
    NOISE,
    SEEDS,
    make_study_plan,
    make_study_record,
)
from trainables.protocol import Measurement

THRESHOLD = "model.halt.threshold"
DEPTHS = {"baseline": 5.0, "thinker": 8.0, "better": 8.0, "deep": 8.0}
DEPTH_CHANGES = {0.3: -4.0, 0.5: -2.0, 0.7: -1.0}
"""Change in layers by threshold."""
STUDY_PLAN = make_study_plan(
    tuple(DEPTHS),
    confirm=ConfirmPlan(1, SEEDS, ("iid",)),
    posthoc=tuple({THRESHOLD: threshold} for threshold in DEPTH_CHANGES),
    metrics=tuple(replace(metric, is_cost=metric.name == "depth") for metric in METRICS),
    answer=AnswerPlan(("iid/accuracy",), 0.02, 0.05, 3),
)


def accuracy_of(name, depth, seed):
    """Return an accuracy that grows with depth in all arms; `better` has an additional gain."""
    index = SEEDS.index(seed)
    return 0.5 + 0.03 * depth + 0.1 * (name == "better") + NOISE[(index * 3 + len(name)) % 8]


def make_depth_record(name, seed, threshold=None):
    depth = DEPTHS[name] + 0.1 * NOISE[SEEDS.index(seed)] + (DEPTH_CHANGES[threshold] if threshold else 0.0)
    if name == "deep" and threshold:
        depth = max(depth, 6.0)
    metrics = {"iid/accuracy": accuracy_of(name, depth, seed), "iid/depth": depth}
    fields = {} if threshold is None else {"phase": "posthoc", "overrides": {THRESHOLD: threshold}}
    depth_record = make_study_record(name, seed, last=Measurement(1, 1.0, metrics), **fields)
    return replace(depth_record, trial_id=f"{depth_record.trial_id}-{threshold}")


def make_depth_records():
    settings = (None, *DEPTH_CHANGES)
    return [
        make_depth_record(name, seed, setting) for name in DEPTHS for seed in SEEDS for setting in settings
    ]


def equal_costs_by_arm(report):
    return {equal_cost.arm: equal_cost for equal_cost in report.equal_costs}


def test_gain_from_depth_disappears_at_equal_depth():
    equal_costs = equal_costs_by_arm(summarise(STUDY_PLAN, make_depth_records()))
    thinker_cost, better_cost = equal_costs["thinker"], equal_costs["better"]
    assert thinker_cost.as_trained.low > 0.05
    assert thinker_cost.equal.low < 0 < thinker_cost.equal.high
    assert abs(thinker_cost.equal.mean) < 0.01
    assert better_cost.equal.low > 0.08
    assert (thinker_cost.cost, thinker_cost.path, thinker_cost.reached) == ("iid/depth", THRESHOLD, 8)
    assert (thinker_cost.own_cost, thinker_cost.cost_of_reference) == pytest.approx((8.0, 5.0), abs=0.01)


def test_gain_from_cost_is_a_warning():
    report = summarise(STUDY_PLAN, make_depth_records())
    assert [verdict.kind for verdict in report.verdicts] == ["better"] * 3
    assert any(re.match("thinker .*baseline .*iid/accuracy .* 8 of ", text) for text in warning_texts(report))


def test_no_estimate_if_no_seed_reaches_the_cost():
    report = summarise(STUDY_PLAN, make_depth_records())
    deep_cost = equal_costs_by_arm(report)["deep"]
    assert deep_cost.equal is None
    assert deep_cost.reached == 0
    assert "unknown: 0 of 8 seeds" in as_markdown_report(report, [])


def test_no_estimate_if_one_seed_misses_the_cost():
    records_with_crash = [
        replace(record, outcome=OutcomeKind.CRASHED, last=None)
        if record.arm == "thinker"
        and record.seed == 103
        and record.overrides in ({THRESHOLD: 0.3}, {THRESHOLD: 0.5})
        else record
        for record in make_depth_records()
    ]
    thinker_cost = equal_costs_by_arm(summarise(STUDY_PLAN, records_with_crash))["thinker"]
    assert (thinker_cost.reached, thinker_cost.seeds, thinker_cost.equal) == (7, 8, None)


def test_settings_are_compared_with_as_trained_by_seed():
    report = summarise(STUDY_PLAN, make_depth_records())
    (estimate,) = (
        setting_effect.estimate
        for setting_effect in report.setting_effects
        if setting_effect.arm == "baseline" and setting_effect.setting == f"{THRESHOLD}=0.5"
    )
    assert estimate.n == 8
    assert estimate.mean == pytest.approx(-0.06)
    assert estimate.high is None or estimate.high - estimate.low < 1e-6, (
        "pairing removes the common part of each seed"
    )


def test_interpolation_averages_equal_costs_and_never_extrapolates():
    points = [(3.0, 0.3), (1.0, 0.1), (5.0, 0.9), (3.0, 0.5)]
    assert interpolate(points, 2.0) == pytest.approx(0.25)
    assert interpolate(points, 3.0) == pytest.approx(0.4)
    assert interpolate(points, 5.0) == 0.9
    assert interpolate(points, 5.01) is None
    assert interpolate(points, 0.99) is None
    assert interpolate([(2.0, 0.7)], 2.0) == 0.7
    assert interpolate([(2.0, 0.7)], 2.1) is None
    assert interpolate([], 1.0) is None
