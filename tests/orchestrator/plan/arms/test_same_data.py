"""Settings of tasks that change no example a trial reads are no arms; those that change some are."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from orchestrator.errors import PlanError
from tests.orchestrator.plan.ablation_check.test_empty_arms import (
    LISTOPS,
    LOOPED,
    STRINGS,
    WRITER,
    spec_of,
    system,
)
from tests.support.specs.planned import plan
from trainables.task_catalog import task_config

CAUSAL = {**WRITER, "causal": True}
SHALLOW = {**LISTOPS, "depth_max": 3, "trees": 2000, "near_iid_examples": 100, "valid_examples": 100}
LETTERS = {
    **STRINGS,
    "symbols": 60,
    "length_min": 1,
    "length_max": 1,
    "train_examples": 20,
    "valid_examples": 5,
    "test_examples": 4,
    "function": "copy",
}
ADDITION = {"name": "algorithms", "problem": "addition"}
Case = tuple[dict[str, Any], Mapping[str, Any], Sequence[str]]
SAME: Mapping[str, Case] = {
    "a limit beyond the longest tree": (system(SHALLOW), {"task.train_length_max": 50}, ("near-iid",)),
    "a step more for loops that are not counted": (
        system(ADDITION, LOOPED),
        {"task.carry_step": True},
        ("length-22",),
    ),
    "a step more for layers": (system(ADDITION, CAUSAL), {"task.carry_step": True}, ("length-22",)),
    "further tests that nobody reads": (
        system({"name": "algorithms"}, LOOPED),
        {"task.test_lengths": [30, 40, 50]},
        ("length-30", "length-40"),
    ),
    "fewer ranges that nobody reads": (
        system(),
        {"task.length_ranges": [[200, 300]]},
        ("length-200-300",),
    ),
    "fewer lengths that nobody reads": (system(STRINGS, WRITER), {"task.test_lengths": [16]}, ("length-16",)),
}
OTHER: Mapping[str, Case] = {
    "a limit that leaves trees out": (system(SHALLOW), {"task.train_length_max": 12}, ("near-iid",)),
    "a step more for loops that are counted": (
        system(ADDITION, {**LOOPED, "loops": "task"}),
        {"task.carry_step": True},
        ("length-22",),
    ),
    "fewer training trees": (system(SHALLOW), {"task.trees": 1000}, ("near-iid",)),
    "answers written word by word": (
        system(ADDITION, LOOPED),
        {"task.form": "next_token"},
        ("length-22",),
    ),
}
OTHER_TESTS: Mapping[str, tuple[Case, str, str]] = {
    "another seed": (
        (system(SHALLOW), {"task.data_seed": 1}, ("near-iid",)),
        r"task\.data_seed",
        "valid, near-iid",
    ),
    "other sizes": (
        (system(SHALLOW), {"task.near_iid_examples": 50}, ("near-iid",)),
        r"task\.near_iid_examples",
        "valid, near-iid",
    ),
    "more examples of one test": (
        (system(), {"task.test_examples": 50}, ("length-200-300",)),
        r"task\.test_examples",
        "length-200-300",
    ),
    "other answers": (
        (system({**STRINGS, "function": "copy"}, WRITER), {"task.function": "reverse"}, ("near-iid",)),
        r"task\.function",
        "valid, near-iid",
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_what_changes_no_example_that_is_read_is_refused(name: str) -> None:
    settings, sets, splits = SAME[name]
    with pytest.raises(PlanError, match=r"arms\.arm\.set\S* arm changes nothing against baseline"):
        plan(spec_of(settings, {"arm": sets}, splits))


FASTER = {"faster": {"train.lr": 0.01}}


@pytest.mark.parametrize("name", OTHER_TESTS)
def test_an_arm_with_tests_of_its_own_is_refused_unless_it_is_a_context(name: str) -> None:
    (settings, sets, splits), field, changed = OTHER_TESTS[name]
    with pytest.raises(PlanError, match=rf"arms\.arm\.set\.{field}: .*{changed}.* contexts: "):
        plan(spec_of(settings, {"arm": sets}, splits))
    ((path, value),) = sets.items()
    old = task_config(settings["task"]).model_dump()[path.removeprefix("task.")]
    assert len(plan(spec_of(settings, FASTER, splits, contexts={path: [old, value]})).contexts) == 2


@pytest.mark.parametrize("name", OTHER)
def test_what_changes_examples_is_not_refused(name: str) -> None:
    settings, sets, splits = OTHER[name]
    assert "task" in plan(spec_of(settings, {"arm": sets}, splits)).proofs[1].evidence
