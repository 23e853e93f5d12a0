"""Task settings that change no example of a trial are no arms; settings that change examples are."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.orchestrator.plan.ablation_check.test_empty_arms import (
    LISTOPS,
    LOOPED,
    make_arms_spec,
    make_settings,
)
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults
from trainables.task_catalog import task_config

SHALLOW_TREES = {**LISTOPS, "depth_max": 3, "trees": 2000, "near_iid_examples": 100, "valid_examples": 100}
ADDITION = {"name": "algorithms", "problem": "addition"}
Case = tuple[dict[str, Any], Mapping[str, Any], Sequence[str]]
UNCHANGED_EXAMPLES: Mapping[str, Case] = {
    "a limit beyond the longest tree": (
        make_settings(SHALLOW_TREES),
        {"task.train_length_max": 50},
        ("near-iid",),
    ),
    "a step more for loops that are not counted": (
        make_settings(ADDITION, LOOPED),
        {"task.carry_step": True},
        ("length-22",),
    ),
    "further tests that nobody reads": (
        make_settings({"name": "algorithms"}, LOOPED),
        {"task.test_lengths": [30, 40, 50]},
        ("length-30", "length-40"),
    ),
}
CHANGED_EXAMPLES: Mapping[str, Case] = {
    "a limit that leaves trees out": (
        make_settings(SHALLOW_TREES),
        {"task.train_length_max": 12},
        ("near-iid",),
    ),
    "a step more for loops that are counted": (
        make_settings(ADDITION, {**LOOPED, "loops": "task"}),
        {"task.carry_step": True},
        ("length-22",),
    ),
}
CHANGED_TESTS: Mapping[str, tuple[Case, str]] = {
    "another seed": ((make_settings(SHALLOW_TREES), {"task.data_seed": 1}, ("near-iid",)), "valid, near-iid"),
    "more examples of one test": (
        (make_settings(), {"task.test_examples": 50}, ("length-200-300",)),
        "length-200-300",
    ),
}


@pytest.mark.parametrize("name", UNCHANGED_EXAMPLES)
def test_task_setting_that_changes_no_example_is_refused(name: str) -> None:
    settings, sets, splits = UNCHANGED_EXAMPLES[name]
    with expect_faults("arm-has-no-effect", f"arms.arm.set.{next(iter(sets))}"):
        plan(make_arms_spec(settings, {"arm": sets}, splits))


FASTER = {"faster": {"train.lr": 0.01}}


@pytest.mark.parametrize("name", CHANGED_TESTS)
def test_arm_with_changed_tests_is_refused_unless_it_is_a_context(name: str) -> None:
    (settings, sets, splits), changed_splits = CHANGED_TESTS[name]
    ((path, value),) = sets.items()
    with expect_faults("different-test-data", f"arms.arm.set.{path}") as caught:
        plan(make_arms_spec(settings, {"arm": sets}, splits))
    assert changed_splits in str(caught.value)
    old_value = task_config(settings["task"]).model_dump()[path.removeprefix("task.")]
    assert (
        len(plan(make_arms_spec(settings, FASTER, splits, contexts={path: [old_value, value]})).contexts) == 2
    )


@pytest.mark.parametrize("name", CHANGED_EXAMPLES)
def test_task_setting_that_changes_examples_is_accepted(name: str) -> None:
    settings, sets, splits = CHANGED_EXAMPLES[name]
    assert "task" in plan(make_arms_spec(settings, {"arm": sets}, splits)).proofs[1].evidence
