"""The scope of intervals follows from the spec: seeds, searches, data, method, level and comparisons."""

from dataclasses import replace

import pytest

from orchestrator.plan.types import Plan
from orchestrator.report.results.summary import summarise
from search_spaces.dimensions import Dimension, Float, Space
from tests.orchestrator.report.comparisons.test_answer_warnings import make_search_plan
from tests.orchestrator.report.comparisons.test_answers import SEEDS, make_study_plan, make_study_records

SEARCH_VARIANCE, DATA_SAMPLING = "variance between searches", "the sampling of the data"


def make_searched_plan(repeats: int) -> Plan:
    space = Space((Dimension("train.lr", Float(1e-4, 1e-2)),))
    return make_study_plan(
        search=make_search_plan(repeats=repeats),
        arms=tuple(replace(arm, space=space) for arm in make_study_plan().arms),
    )


@pytest.mark.parametrize(
    ("sweep_plan", "varied_sources", "shared_sources"),
    [
        (make_study_plan(), set(), {"the data set"}),
        (make_searched_plan(1), set(), {SEARCH_VARIANCE, "the data set"}),
        (make_searched_plan(4), {SEARCH_VARIANCE}, {"the data set"}),
        (make_study_plan(trainable="train.py"), set(), set()),
    ],
    ids=["given settings", "one search", "repeated searches", "own code"],
)
def test_scope_lists_varied_and_shared_sources(
    sweep_plan: Plan, varied_sources: set[str], shared_sources: set[str]
) -> None:
    trial_records = [
        replace(record, repeat=record.number * sweep_plan.repeats // len(SEEDS))
        for record in make_study_records()
    ]
    scope = summarise(sweep_plan, trial_records).interval_scope
    assert set(scope.varied[1:]) == varied_sources
    assert set(scope.shared) == shared_sources
    assert (scope.method, scope.level, scope.comparisons) == ("paired t", 0.05, 3)


def test_resampled_data_is_a_varied_source() -> None:
    settings = {"task": {"name": "listops", "data_seed": 0}}
    fixed_plan = make_study_plan(
        arms=tuple(replace(arm, settings=settings) for arm in make_study_plan().arms)
    )
    fixed_scope = summarise(fixed_plan, make_study_records()).interval_scope
    assert fixed_plan.confirm is not None
    resampled_scope = summarise(
        replace(fixed_plan, confirm=replace(fixed_plan.confirm, resample_data=True)), make_study_records()
    ).interval_scope
    assert DATA_SAMPLING not in fixed_scope.varied
    assert any("task.data_seed" in line for line in fixed_scope.shared)
    assert DATA_SAMPLING in resampled_scope.varied
    assert resampled_scope.shared == ()
