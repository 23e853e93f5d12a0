"""Ids are made of content alone: what changes a trial changes its id, nothing else does."""

from collections.abc import Iterator
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


def listed(
    arms: tuple[Arm, ...] = (ARM, OTHER),
    search: SearchPlan | None = SEARCHING,
    confirm: ConfirmPlan | None = CONFIRMING,
    posthoc: tuple[Any, ...] = POSTHOC,
) -> list[PlannedTrial]:
    return list(planned_trials(arms, search, confirm, posthoc))


def ids(found: list[PlannedTrial], phase: str) -> set[str]:
    return {trial.trial_id for trial in found if trial.phase == phase}


def test_counts_and_order() -> None:
    found = listed()
    assert [(trial.phase, trial.arm) for trial in found] == [
        *[("search", "one")] * 4,
        *[("search", "other")] * 4,
        *[("confirm", "one")] * 6,
        *[("confirm", "other")] * 6,
        *[("posthoc", "one")] * 6,
    ]
    for phase in ("search", "confirm", "posthoc"):
        numbers = [trial.number for trial in found if trial.arm == "one" and trial.phase == phase]
        assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("best", [1, 2])
def test_an_arm_that_searches_nothing_is_tried_as_often_as_it_is_confirmed(best: int) -> None:
    fixed = Space((Dimension("train.lr", Fixed(1e-3)),))
    arms = (ARM, *(replace(OTHER, space=space) for space in (Space(), fixed)))
    for arm in arms[1:]:
        found = listed((ARM, arm), confirm=replace(CONFIRMING, best=best))
        searched = [trial.arm for trial in found if trial.phase == "search"]
        assert (searched.count("one"), searched.count("other")) == (4, best)


def test_search_seeds_are_the_same_in_every_arm_and_differ_by_trial() -> None:
    found = listed()
    by_arm = [
        [trial.seed for trial in found if trial.phase == "search" and trial.arm == arm]
        for arm in ("one", "other")
    ]
    assert by_arm[0] == by_arm[1]
    assert len(set(by_arm[0])) == 4
    assert by_arm[0][0] == search_seed(SEARCHING, 0)


def test_confirm_seeds_are_those_asked_for_in_every_arm_and_rank() -> None:
    found = [trial for trial in listed() if trial.phase == "confirm" and trial.arm == "other"]
    assert [(trial.rank, trial.seed) for trial in found] == [(r, s) for r in (0, 1) for s in (11, 12, 13)]


def test_posthoc_reads_every_confirmed_trial_of_arms_that_have_the_field() -> None:
    found = [trial for trial in listed() if trial.phase == "posthoc"]
    assert {trial.arm for trial in found} == {"one"}
    assert all(trial.overrides == POSTHOC[0] for trial in found)


def test_without_a_search_the_settings_are_confirmed_as_they_are() -> None:
    found = listed(search=None, confirm=replace(CONFIRMING, best=1))
    assert {trial.rank for trial in found} == {0}
    assert "search" not in {trial.phase for trial in found}


def test_the_name_of_an_arm_is_no_content() -> None:
    renamed = listed(arms=(replace(ARM, name="renamed", why="other words"), OTHER))
    assert {trial.trial_id for trial in renamed} == {trial.trial_id for trial in listed()}


def test_more_trials_leave_the_first_ones_as_they_are_and_confirm_anew() -> None:
    before, after = listed(), listed(search=replace(SEARCHING, trials_per_arm=6))
    assert ids(before, "search") < ids(after, "search")
    assert not ids(before, "confirm") & ids(after, "confirm")


def test_more_seeds_and_arms_leave_what_is_there_as_it_is() -> None:
    more = listed(arms=(ARM, OTHER, replace(ARM, name="third", digest="digest-third")))
    assert {trial.trial_id for trial in listed()} < {trial.trial_id for trial in more}
    seeded = listed(confirm=replace(CONFIRMING, seeds=(11, 12, 13, 14)))
    assert {trial.trial_id for trial in listed()} < {trial.trial_id for trial in seeded}


def changed_searches() -> Iterator[SearchPlan]:
    yield replace(SEARCHING, seed=1)
    yield replace(SEARCHING, sampler={"name": "random"})
    yield replace(SEARCHING, sampler={"name": "tpe", "multivariate": True})
    yield replace(SEARCHING, stopper=None)
    yield replace(SEARCHING, objectives=(Objective(metric="valid/accuracy", goal="min"),))


@pytest.mark.parametrize("search", list(changed_searches()))
def test_whatever_steers_the_search_is_content(search: SearchPlan) -> None:
    found = listed(search=search)
    for phase in ("search", "confirm", "posthoc"):
        assert not ids(found, phase) & ids(listed(), phase)


@given(
    st.integers(1, 30),
    st.integers(1, 4),
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6, unique=True),
)
def test_no_two_trials_share_an_id(count: int, best: int, seeds: list[int]) -> None:
    found = listed(
        search=replace(SEARCHING, trials_per_arm=count), confirm=ConfirmPlan(best, tuple(seeds), ())
    )
    assert len({trial.trial_id for trial in found}) == len(found)
