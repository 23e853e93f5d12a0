"""Sweeps side by side: which arms are the same, by how much they differ, and what else does."""

from dataclasses import replace

import pytest

from orchestrator.plan.types import AnswerPlan
from orchestrator.report.comparisons.comparison import SweepData, compare_sweeps
from orchestrator.report.results.statistics import estimate, welch_difference
from orchestrator.report.results.summary import summarise
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.results.test_winner import SCORE, played
from tests.support.specs.plans import make_plan

ANSWER = AnswerPlan(("test/score",), None, 0.05, 1)
SEEDS = (1, 2, 3)


def side(values, *, label="one", arms=2, seeds=SEEDS, spec=None, data=None, changed=None):
    """A sweep of which confirm trials measured `values`, by arm; `changed` changes its plan."""
    plan = make_plan(arms, trials_per_arm=0, seeds=seeds)
    plan = replace(plan, metrics=(SCORE,), answer=ANSWER, trainable="own:train")
    plan = plan if changed is None else changed(plan)
    scores = {
        (arm, "confirm", number): value for arm, each in values.items() for number, value in enumerate(each)
    }
    records = played(plan, scores)
    return SweepData(label, plan, summarise(plan, records), records, spec or {}, data or {})


def renamed(name, **changes):
    """The second arm under another name, its settings changed."""

    def change(plan):
        arm = replace(plan.arms[1], name=name, **changes)
        trials = tuple(replace(trial, arm=name) if trial.arm == "arm-1" else trial for trial in plan.trials)
        return replace(plan, arms=(plan.arms[0], arm), trials=trials)

    return change


FIRST = side({"arm-0": (0.1, 0.2, 0.3), "arm-1": (0.5, 0.6, 0.8)})


def test_equal_seeds_are_paired():
    second = side({"arm-0": (0.2, 0.2, 0.5), "arm-1": (0.5, 0.6, 0.8)})
    found = compare_sweeps(FIRST, second).arms
    assert [(each.arms, each.metric, each.same) for each in found] == [
        (("arm-0", "arm-0"), "test/score", "settings and ranges"),
        (("arm-1", "arm-1"), "test/score", "settings and ranges"),
    ]
    assert found[0].difference == estimate([0.2 - 0.1, 0.0, 0.5 - 0.3])
    assert found[0].how == "paired, 3 seeds"
    assert (found[1].difference.mean, found[1].difference.low) == (0.0, None)


def test_seeds_of_one_alone_are_left_out_of_pairs_and_said():
    second = side({"arm-0": (0.2, 0.5)}, seeds=(2, 9, 3)[::2])
    (found,) = compare_sweeps(FIRST, second).arms
    assert found.how == "paired, 2 seeds, 1 in one alone left out"
    assert found.difference.mean == pytest.approx((0.0 + 0.2) / 2)
    assert found.first.n == 3


@pytest.mark.parametrize("seeds", [SEEDS[:2], (8, 9)], ids=["paired", "Welch"])
def test_differences_end_where_quantities_do(seeds):
    """Two seeds that differ a lot: Student's t alone would reach beyond scores of 0 and 1."""

    def bounded(plan):
        return replace(plan, metrics=(replace(SCORE, low=0.0, high=1.0),))

    first = side({"arm-0": (0.0, 1.0)}, seeds=SEEDS[:2], changed=bounded)
    (found,) = compare_sweeps(first, side({"arm-0": (1.0, 0.1)}, seeds=seeds, changed=bounded)).arms
    assert (found.difference.low, found.difference.high) == (-1.0, 1.0)


def failing(made, *failed):
    """The same sweep, of which confirm trials of these arms and numbers crashed."""
    records = [
        replace(record, outcome=OutcomeKind.CRASHED, last=None)
        if (record.arm, record.number) in failed
        else record
        for record in made.records
    ]
    return replace(made, records=records, report=summarise(made.plan, records))


def test_comparison_repeats_warnings_of_both_reports():
    first = side({"arm-0": (0.1, 0.2, 0.3), "arm-1": (0.5, 0.6)})
    found = compare_sweeps(first, side({"arm-0": (0.1, 0.2), "arm-1": (0.5, 0.6)}, label="two"))
    assert found.notices == (
        "one: 1 trial has not ended: every number is of those that have.",
        "two: 2 trials have not ended: every number is of those that have.",
    )
    assert compare_sweeps(FIRST, FIRST).notices == ()


def test_comparison_names_failed_seeds_and_unmeasured_arms():
    values = {"arm-0": (0.1, 0.2, 0.3), "arm-1": (0.5, 0.6, 0.8)}
    second = failing(side(values, label="two"), ("arm-0", 2), *(("arm-1", number) for number in range(3)))
    found = compare_sweeps(FIRST, second)
    (only,) = found.arms
    assert only.how == "paired, 2 seeds, 1 in one alone left out; failed: 1 seed in two"
    (shown,) = found.unmeasured
    assert shown == (
        "arm-1: no outcome in both sweeps to compare (one: 3 seeds finished, 0 failed; "
        "two: 0 seeds finished, 3 failed)"
    )
    both = failing(FIRST, ("arm-0", 0)), failing(second, ("arm-0", 0))
    assert compare_sweeps(*both).arms[0].how.endswith("; failed: 1 seed in one, 2 seeds in two")
    assert compare_sweeps(FIRST, FIRST).unmeasured == ()


@pytest.mark.parametrize(
    ("seeds", "how"), [((7, 8), "Welch, no seed in both"), ((3, 8), "Welch, one seed in both")]
)
def test_disjoint_seeds_are_compared_by_welch(seeds, how):
    (found,) = compare_sweeps(FIRST, side({"arm-0": (0.2, 0.5)}, seeds=seeds)).arms
    assert found.how == how
    mean, low, high = welch_difference([0.1, 0.2, 0.3], [0.2, 0.5])
    assert (found.difference.mean, found.difference.low, found.difference.high) == (mean, low, high)


def measured_on(made, digest):
    """The same sweep, whose trials reported the digest of their test examples by seed."""
    records = [replace(record, attributes={"test/digest": digest(record.seed)}) for record in made.records]
    return replace(made, records=records, report=summarise(made.plan, records))


@pytest.mark.parametrize("seeds", [SEEDS, (7, 8, 9)], ids=["paired", "Welch"])
def test_outcomes_on_other_test_examples_are_not_compared(seeds):
    values = {"arm-0": (0.2, 0.3, 0.5)}
    second = side(values, label="two", seeds=seeds)
    first, other = measured_on(FIRST, lambda _: "a" * 32), measured_on(second, lambda _: "b" * 32)
    (found,) = compare_sweeps(first, other).arms
    assert found.difference is None
    assert (found.first.n, found.second.n) == (3, 3)
    assert "arm-0 of two was measured on other examples of test (digest bbbbbbbb)" in found.different_tests
    assert compare_sweeps(first, other).unchecked_tests == ()
    (same,) = compare_sweeps(first, measured_on(second, lambda _: "a" * 32)).arms
    assert (same.difference, same.different_tests) == (compare_sweeps(FIRST, second).arms[0].difference, "")


def test_seeds_with_examples_of_their_own_are_compared_where_they_are_the_same():
    first = measured_on(FIRST, str)
    assert compare_sweeps(first, first).arms[0].difference is not None
    disjoint = measured_on(side({"arm-0": (0.2, 0.5)}, seeds=(7, 8)), str)
    assert compare_sweeps(first, disjoint).arms[0].difference is not None
    drawn = measured_on(side({"arm-0": (0.2, 0.5, 0.6)}), lambda seed: str(10 * seed))
    assert compare_sweeps(first, drawn).arms[0].difference is None


def test_splits_without_digests_in_both_sweeps_are_named():
    assert compare_sweeps(FIRST, FIRST).unchecked_tests == ("test",)
    assert compare_sweeps(measured_on(FIRST, str), FIRST).unchecked_tests == ("test",)
    assert compare_sweeps(measured_on(FIRST, str), measured_on(FIRST, str)).unchecked_tests == ()


def test_arms_are_known_by_content_not_by_name():
    second = side({"wide": (0.6, 0.6, 0.9)}, changed=renamed("wide"))
    found = compare_sweeps(FIRST, second)
    assert [arm.arms for arm in found.arms] == [("arm-1", "wide")]
    assert found.alone == ((), ())
    other = side({"arm-1": (0.6,)}, changed=renamed("arm-1", digest="other", settings={"model": {"x": 9}}))
    found = compare_sweeps(FIRST, other)
    assert found.arms == ()
    assert found.alone == (("arm-1",), ("arm-1",))


def test_equal_settings_with_other_ranges_and_equal_settings_after_a_search():
    ranges = side({"arm-1": (0.6, 0.6)}, changed=renamed("arm-1", digest="other"))
    assert [arm.same for arm in compare_sweeps(FIRST, ranges).arms] == ["settings"]
    trained = FIRST.records[-1]
    assert trained.arm == "arm-1"

    def searched(plan):
        return renamed("found", digest="other", settings=trained.settings | {"model": {"x": 9}})(plan)

    second = side({"found": (0.6, 0.6, 0.7)}, changed=searched)
    records = [replace(record, settings=trained.settings) for record in second.records]
    (found,) = compare_sweeps(FIRST, replace(second, records=records)).arms
    assert (found.arms, found.same) == (("arm-1", "found"), "what was trained")


def test_comparison_lists_differences_in_spec_code_and_data():
    spec, data = {"name": "one", "confirm": {"seeds": [1]}}, {"listops/train": "a", "listops/valid": "b"}
    first = replace(FIRST, spec=spec, data=data)
    assert (
        compare_sweeps(first, first).spec,
        compare_sweeps(first, first).code,
        compare_sweeps(first, first).data,
    ) == (
        (),
        (),
        (),
    )
    provenance = {"commit": "c0ffee", "versions": {"torch": "2.13"}, "command": ["haltsweep"]}
    provenance["data"] = {"listops/train": "c"}
    records = [replace(record, provenance=provenance) for record in FIRST.records]
    more = {"confirm": {"seeds": [1], "best": 2}, "name": "one"}
    assert not compare_sweeps(FIRST, FIRST).data_known
    found = compare_sweeps(first, replace(first, records=records, spec=more, data={"listops/train": "c"}))
    assert found.data_known
    assert [str(each) for each in found.spec] == ["confirm.best: (nothing) -> 2"]
    assert found.data == (("listops/train", "a", "c"), ("listops/valid", "b", "unknown"))
    assert ("commit of the launch folder", "unknown", "c0ffee") in found.code
    assert ("versions", "unknown", "torch 2.13") in found.code
    assert not [what for what, *_ in found.code if "command" in what or "data" in what], "told elsewhere"


@pytest.mark.parametrize(
    ("lr", "expected"),
    [(0.1, ()), (0.2, ("arm-0: the searches chose different values: train.lr: 0.1 -> 0.2",))],
    ids=["the same", "another"],
)
def test_a_value_that_one_sweep_searches_and_the_other_is_set_to(lr, expected):
    first, second = (_set(FIRST, {"lr": each}) for each in (0.5, lr))
    assert compare_sweeps(_choosing(first, 0.1), replace(second, label="two")).assignments == expected


def _set(side, train):
    """Its first arm with other settings and the same content for all who ask."""
    first, *others = side.plan.arms
    return replace(side, plan=replace(side.plan, arms=(replace(first, settings={"train": train}), *others)))


def _choosing(side, lr):
    before, *others = side.report.tallies
    tallies = (replace(before, assignment={**before.assignment, "train.lr": lr}), *others)
    return replace(side, report=replace(side.report, tallies=tallies))


def test_comparison_lists_different_choices():
    assert compare_sweeps(FIRST, _choosing(FIRST, 0.1)).assignments == (
        "arm-0: the searches chose different values: train.lr: (nothing) -> 0.1",
    )
