"""Ids of trials depend only on their content."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plan.planned_trials import planned_trials, search_seed
from orchestrator.plan.types import Arm, ConfirmPlan, SearchPlan
from orchestrator.spec.section import Objective
from orchestrator.trials import PlannedTrial
from search_spaces.dimensions import Dimension, Fixed, Float, Space

SETTINGS = {"task": {}, "model": {"halt": {"threshold": 0.9}}, "train": {}}
SPACE = Space((Dimension("train.lr", Float(1e-4, 1e-2)),))
ARM = Arm("one", "", SETTINGS, (), SPACE, (), "digest-one")
OTHER = Arm("other", "", {"task": {}, "model": {"halt": None}, "train": {}}, (), SPACE, (), "digest-other")
OBJECTIVE = Objective(metric="valid/accuracy", goal="max")
SEARCHING = SearchPlan(4, {"name": "tpe"}, {"name": "asha"}, (OBJECTIVE,), 0)
CONFIRMING = ConfirmPlan(2, (11, 12, 13), ())
POSTHOC = ({"model.halt.threshold": 0.5},)


def list_trials(
    arms: tuple[Arm, ...] = (ARM, OTHER),
    search: SearchPlan | None = SEARCHING,
    confirm: ConfirmPlan | None = CONFIRMING,
    posthoc: tuple[Any, ...] = POSTHOC,
) -> list[PlannedTrial]:
    return list(planned_trials(arms, search, confirm, posthoc))


def ids(trials: list[PlannedTrial], phase: str) -> set[str]:
    return {trial.trial_id for trial in trials if trial.phase == phase}


def test_number_and_order_of_trials() -> None:
    trials = list_trials()
    assert [(trial.phase, trial.arm) for trial in trials] == [
        *[("search", "one")] * 4,
        *[("search", "other")] * 4,
        *[("confirm", "one")] * 6,
        *[("confirm", "other")] * 6,
        *[("posthoc", "one")] * 6,
    ]
    for phase in ("search", "confirm", "posthoc"):
        numbers = [trial.number for trial in trials if trial.arm == "one" and trial.phase == phase]
        assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("best", [1, 2])
def test_arm_without_a_search_has_as_many_search_trials_as_confirmed_ranks(best: int) -> None:
    fixed = Space((Dimension("train.lr", Fixed(1e-3)),))
    arms = (ARM, *(replace(OTHER, space=space) for space in (Space(), fixed)))
    for arm in arms[1:]:
        trials = list_trials((ARM, arm), confirm=replace(CONFIRMING, best=best))
        searched = [trial.arm for trial in trials if trial.phase == "search"]
        assert (searched.count("one"), searched.count("other")) == (4, best)


def test_search_seeds_are_equal_in_every_arm_and_differ_between_trials() -> None:
    trials = list_trials()
    by_arm = [
        [trial.seed for trial in trials if trial.phase == "search" and trial.arm == arm]
        for arm in ("one", "other")
    ]
    assert by_arm[0] == by_arm[1]
    assert len(set(by_arm[0])) == 4
    assert by_arm[0][0] == search_seed(SEARCHING, 0)


def test_confirm_seeds_are_equal_in_every_arm_and_rank() -> None:
    trials = [trial for trial in list_trials() if trial.phase == "confirm" and trial.arm == "other"]
    assert [(trial.rank, trial.seed) for trial in trials] == [(r, s) for r in (0, 1) for s in (11, 12, 13)]


def test_posthoc_trials_exist_for_arms_with_the_field() -> None:
    trials = [trial for trial in list_trials() if trial.phase == "posthoc"]
    assert {trial.arm for trial in trials} == {"one"}
    assert all(trial.overrides == POSTHOC[0] for trial in trials)


def test_name_of_an_arm_does_not_change_ids() -> None:
    renamed = list_trials(arms=(replace(ARM, name="renamed", why="other words"), OTHER))
    assert {trial.trial_id for trial in renamed} == {trial.trial_id for trial in list_trials()}


def test_more_search_trials_keep_search_ids_and_change_confirm_ids() -> None:
    shorter, longer = list_trials(), list_trials(search=replace(SEARCHING, trials_per_arm=6))
    assert ids(shorter, "search") < ids(longer, "search")
    assert not ids(shorter, "confirm") & ids(longer, "confirm")


def test_more_seeds_and_arms_keep_existing_ids() -> None:
    more_trials = list_trials(arms=(ARM, OTHER, replace(ARM, name="third", digest="digest-third")))
    assert {trial.trial_id for trial in list_trials()} < {trial.trial_id for trial in more_trials}
    seeded = list_trials(confirm=replace(CONFIRMING, seeds=(11, 12, 13, 14)))
    assert {trial.trial_id for trial in list_trials()} < {trial.trial_id for trial in seeded}


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"sampler": {"name": "tpe", "multivariate": True}},
        {"stopper": None},
        {"objectives": (Objective(metric="valid/accuracy", goal="min"),)},
    ],
)
def test_settings_of_the_search_change_ids(changes: dict[str, Any]) -> None:
    trials = list_trials(search=replace(SEARCHING, **changes))
    for phase in ("search", "confirm", "posthoc"):
        assert not ids(trials, phase) & ids(list_trials(), phase)


@given(
    st.integers(1, 30),
    st.integers(1, 4),
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6, unique=True),
)
def test_ids_of_trials_are_unique(count: int, best: int, seeds: list[int]) -> None:
    trials = list_trials(
        search=replace(SEARCHING, trials_per_arm=count), confirm=ConfirmPlan(best, tuple(seeds), ())
    )
    assert len({trial.trial_id for trial in trials}) == len(trials)
