"""Comparison of two sweeps: equal arms, their differences and other differences."""

import re
from dataclasses import replace

import pytest

from orchestrator.plan.types import AnswerPlan
from orchestrator.report.comparisons.comparison import SweepData, compare_sweeps
from orchestrator.report.results.statistics import estimate, welch_difference
from orchestrator.report.results.summary import summarise
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.results.test_winner import SCORE, make_records
from tests.support.specs.plans import make_plan

ANSWER_PLAN = AnswerPlan(("test/score",), None, 0.05, 1)
SEEDS = (1, 2, 3)


def make_sweep_data(values, *, label="one", arms=2, seeds=SEEDS, spec=None, data=None, change_plan=None):
    """Return a sweep whose confirm trials measured `values` by arm; `change_plan` edits its plan."""
    plan = make_plan(arms, trials_per_arm=0, seeds=seeds)
    plan = replace(plan, metrics=(SCORE,), answer=ANSWER_PLAN, trainable="own:train")
    plan = plan if change_plan is None else change_plan(plan)
    scores = {
        (arm, "confirm", number): value
        for arm, scores_of_arm in values.items()
        for number, value in enumerate(scores_of_arm)
    }
    records = make_records(plan, scores)
    return SweepData(label, plan, summarise(plan, records), records, spec or {}, data or {})


def rename_second_arm(name, **changes):
    """Return a function that renames the second arm of a plan and changes its fields."""

    def rename_arm(plan):
        arm = replace(plan.arms[1], name=name, **changes)
        trials = tuple(replace(trial, arm=name) if trial.arm == "arm-1" else trial for trial in plan.trials)
        return replace(plan, arms=(plan.arms[0], arm), trials=trials)

    return rename_arm


FIRST_SWEEP = make_sweep_data({"arm-0": (0.1, 0.2, 0.3), "arm-1": (0.5, 0.6, 0.8)})


def test_equal_seeds_are_paired():
    second_sweep = make_sweep_data({"arm-0": (0.2, 0.2, 0.5), "arm-1": (0.5, 0.6, 0.8)})
    arms = compare_sweeps(FIRST_SWEEP, second_sweep).arms
    assert [(pair.arms, pair.metric, pair.same) for pair in arms] == [
        (("arm-0", "arm-0"), "test/score", "settings and ranges"),
        (("arm-1", "arm-1"), "test/score", "settings and ranges"),
    ]
    assert arms[0].difference == estimate([0.2 - 0.1, 0.0, 0.5 - 0.3])
    assert arms[0].how == "paired, 3 seeds"
    assert (arms[1].difference.mean, arms[1].difference.low) == (0.0, None)


def test_seeds_of_one_sweep_are_excluded_and_counted():
    second_sweep = make_sweep_data({"arm-0": (0.2, 0.5)}, seeds=(2, 9, 3)[::2])
    (pair,) = compare_sweeps(FIRST_SWEEP, second_sweep).arms
    assert re.match("paired, 2 seeds, 1 ", pair.how)
    assert pair.difference.mean == pytest.approx((0.0 + 0.2) / 2)
    assert pair.first.n == 3


def fail_trials(sweep_data, *failed_trials):
    """Return the sweep with crashed confirm trials of these arms and numbers."""
    records = [
        replace(record, outcome=OutcomeKind.CRASHED, last=None)
        if (record.arm, record.number) in failed_trials
        else record
        for record in sweep_data.records
    ]
    return replace(sweep_data, records=records, report=summarise(sweep_data.plan, records))


def test_comparison_names_failed_seeds_and_unmeasured_arms():
    values = {"arm-0": (0.1, 0.2, 0.3), "arm-1": (0.5, 0.6, 0.8)}
    second_sweep = fail_trials(
        make_sweep_data(values, label="two"), ("arm-0", 2), *(("arm-1", number) for number in range(3))
    )
    comparison = compare_sweeps(FIRST_SWEEP, second_sweep)
    (pair,) = comparison.arms
    assert re.match("paired, 2 seeds, 1 .*failed: 1 .* two", pair.how)
    (message,) = comparison.unmeasured
    assert message.startswith("arm-1: ")
    assert compare_sweeps(FIRST_SWEEP, FIRST_SWEEP).unmeasured == ()


@pytest.mark.parametrize("seeds", [(7, 8), (3, 8)], ids=["no seed in both", "one seed in both"])
def test_sweeps_with_fewer_than_two_common_seeds_are_compared_by_welch(seeds):
    (pair,) = compare_sweeps(FIRST_SWEEP, make_sweep_data({"arm-0": (0.2, 0.5)}, seeds=seeds)).arms
    assert pair.how.startswith("Welch")
    mean, low, high = welch_difference([0.1, 0.2, 0.3], [0.2, 0.5])
    assert (pair.difference.mean, pair.difference.low, pair.difference.high) == (mean, low, high)


def with_test_digests(sweep_data, digest_of_seed):
    """Return the sweep with test digests that its trials reported by seed."""
    records = [
        replace(record, attributes={"test/digest": digest_of_seed(record.seed)})
        for record in sweep_data.records
    ]
    return replace(sweep_data, records=records, report=summarise(sweep_data.plan, records))


def test_outcomes_on_other_test_examples_are_not_compared():
    values = {"arm-0": (0.2, 0.3, 0.5)}
    second_sweep = make_sweep_data(values, label="two")
    first_measured, second_measured = (
        with_test_digests(FIRST_SWEEP, lambda _: "a" * 32),
        with_test_digests(second_sweep, lambda _: "b" * 32),
    )
    (pair,) = compare_sweeps(first_measured, second_measured).arms
    assert pair.difference is None
    assert (pair.first.n, pair.second.n) == (3, 3)
    assert re.search(r"arm-0 of two .* test \(digest bbbbbbbb\)", pair.different_tests)
    assert compare_sweeps(first_measured, second_measured).unchecked_tests == ()
    (equal_pair,) = compare_sweeps(first_measured, with_test_digests(second_sweep, lambda _: "a" * 32)).arms
    assert equal_pair.difference == compare_sweeps(FIRST_SWEEP, second_sweep).arms[0].difference


def test_splits_without_digests_in_both_sweeps_are_named():
    assert compare_sweeps(with_test_digests(FIRST_SWEEP, str), FIRST_SWEEP).unchecked_tests == ("test",)


def test_arms_are_matched_by_content():
    second_sweep = make_sweep_data({"wide": (0.6, 0.6, 0.9)}, change_plan=rename_second_arm("wide"))
    comparison = compare_sweeps(FIRST_SWEEP, second_sweep)
    assert [arm.arms for arm in comparison.arms] == [("arm-1", "wide")]
    assert comparison.alone == ((), ())
    changed_sweep = make_sweep_data(
        {"arm-1": (0.6,)},
        change_plan=rename_second_arm("arm-1", digest="other", settings={"model": {"x": 9}}),
    )
    comparison = compare_sweeps(FIRST_SWEEP, changed_sweep)
    assert comparison.arms == ()
    assert comparison.alone == (("arm-1",), ("arm-1",))


def test_arms_are_matched_by_settings_or_by_trained_settings():
    sweep_with_ranges = make_sweep_data(
        {"arm-1": (0.6, 0.6)}, change_plan=rename_second_arm("arm-1", digest="other")
    )
    assert [arm.same for arm in compare_sweeps(FIRST_SWEEP, sweep_with_ranges).arms] == ["settings"]
    trained_record = FIRST_SWEEP.records[-1]
    assert trained_record.arm == "arm-1"

    def change_plan(plan):
        return rename_second_arm(
            "tuned", digest="other", settings=trained_record.settings | {"model": {"x": 9}}
        )(plan)

    second_sweep = make_sweep_data({"tuned": (0.6, 0.6, 0.7)}, change_plan=change_plan)
    records = [replace(record, settings=trained_record.settings) for record in second_sweep.records]
    (pair,) = compare_sweeps(FIRST_SWEEP, replace(second_sweep, records=records)).arms
    assert (pair.arms, pair.same) == (("arm-1", "tuned"), "what was trained")


def test_comparison_lists_differences_in_spec_code_and_data():
    spec, data = {"name": "one", "confirm": {"seeds": [1]}}, {"listops/train": "a", "listops/valid": "b"}
    first_sweep = replace(FIRST_SWEEP, spec=spec, data=data)
    equal = compare_sweeps(first_sweep, first_sweep)
    assert (equal.spec, equal.code, equal.data) == ((), (), ())
    provenance = {"commit": "c0ffee", "versions": {"torch": "2.13"}}
    records = [replace(record, provenance=provenance) for record in FIRST_SWEEP.records]
    changed_spec = {"confirm": {"seeds": [1], "best": 2}, "name": "one"}
    assert not compare_sweeps(FIRST_SWEEP, FIRST_SWEEP).data_known
    comparison = compare_sweeps(
        first_sweep, replace(first_sweep, records=records, spec=changed_spec, data={"listops/train": "c"})
    )
    assert comparison.data_known
    assert [str(change) for change in comparison.spec] == ["confirm.best: (nothing) -> 2"]
    assert comparison.data == (("listops/train", "a", "c"), ("listops/valid", "b", "unknown"))
    assert {row[1:] for row in comparison.code} >= {("unknown", "c0ffee"), ("unknown", "torch 2.13")}
