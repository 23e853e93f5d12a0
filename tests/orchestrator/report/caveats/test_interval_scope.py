"""What intervals cover follows from the spec: seeds, searches, data, method, level, comparisons."""

from dataclasses import replace

import pytest

from orchestrator.plan.types import Plan
from orchestrator.report.results.summary import summarise
from search_spaces.dimensions import Dimension, Float, Space
from tests.orchestrator.report.comparisons.test_answer_warnings import search
from tests.orchestrator.report.comparisons.test_answers import SEEDS, plan, records

LUCK, DRAW = "variance between searches", "the sampling of the data"


def searched(repeats: int) -> Plan:
    space = Space((Dimension("train.lr", Float(1e-4, 1e-2)),))
    return plan(search=search(repeats=repeats), arms=tuple(replace(arm, space=space) for arm in plan().arms))


@pytest.mark.parametrize(
    ("made", "varied", "shared"),
    [
        (plan(), set(), {"the data set"}),
        (searched(1), set(), {LUCK, "the data set"}),
        (searched(4), {LUCK}, {"the data set"}),
        (plan(trainable="train.py"), set(), set()),
    ],
    ids=["given settings", "one search", "repeated searches", "own code"],
)
def test_scope_lists_varied_and_shared_sources(made: Plan, varied: set[str], shared: set[str]) -> None:
    known = [replace(record, repeat=record.number * made.repeats // len(SEEDS)) for record in records()]
    scope = summarise(made, known).interval_scope
    assert scope is not None
    assert set(scope.varied[1:]) == varied
    assert set(scope.shared) == shared
    assert (scope.method, scope.level, scope.comparisons) == ("paired t", 0.05, 3)


def test_resampled_data_is_a_varied_source() -> None:
    settings = {"task": {"name": "listops", "data_seed": 0}}
    made = plan(arms=tuple(replace(arm, settings=settings) for arm in plan().arms))
    fixed = summarise(made, records()).interval_scope
    assert made.confirm is not None
    drawn = summarise(
        replace(made, confirm=replace(made.confirm, resample_data=True)), records()
    ).interval_scope
    assert fixed is not None
    assert drawn is not None
    assert DRAW not in fixed.varied
    assert any("task.data_seed" in line for line in fixed.shared)
    assert DRAW in drawn.varied
    assert drawn.shared == ()


def test_no_scope_without_an_interval() -> None:
    alone = [record for record in records() if record.seed == SEEDS[0]]
    assert summarise(plan(), alone).interval_scope is None
