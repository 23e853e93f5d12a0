"""Which outcome is primary where a spec does not say."""

from dataclasses import replace

import pytest

from orchestrator.plan.answer import answer_plan, default_outcome
from orchestrator.plan.types import ConfirmPlan, SearchPlan
from orchestrator.spec.section import Objective
from orchestrator.spec.types import Answer
from trainables.metrics import Metric, declared
from trainables.training.measured import metrics_of

CONFIRM = ConfirmPlan(1, (1, 2, 3), ("first", "second"))
SEARCH = SearchPlan(4, {}, None, (Objective(metric="valid/error", goal="min"),), 0)


@pytest.mark.parametrize(
    ("task", "head", "quantity"),
    [
        ("listops", "classify", "accuracy"),
        ("logical_inference", "pair", "accuracy"),
        ("flipflop", "positions", "accuracy_last"),
        ("algorithms", "positions", "accuracy_whole"),
        ("cfq", "sequence", "exact_match"),
        ("wmt14", "sequence", "bleu"),
    ],
)
def test_every_task_is_judged_by_its_own_quantity(task: str, head: str, quantity: str) -> None:
    metrics = metrics_of([task], [head])  # type: ignore[list-item]
    assert default_outcome(CONFIRM, None, metrics) == f"first/{quantity}"
    assert len({each.name for each in metrics}) == len(metrics)
    assert (
        "figure" in next(each for each in metrics if each.name == quantity).shown or quantity == "exact_match"
    )


def test_own_trainables_are_judged_by_what_is_searched_for_or_declared_first() -> None:
    two = declared({"accuracy": {}, "error": {}})
    assert default_outcome(CONFIRM, SEARCH, two) == "first/error"
    assert default_outcome(CONFIRM, None, two) == "first/accuracy"
    assert default_outcome(CONFIRM, None, ()) is None
    marked = (Metric("a"), Metric("b", shown=("headline",)))
    assert default_outcome(CONFIRM, SEARCH, marked) == "first/b"
    speed = (Metric("tokens_per_s", shown=("headline",), split="train"),)
    assert default_outcome(CONFIRM, SEARCH, speed) == "train/tokens_per_s"


def test_without_splits_nothing_that_a_search_chose_by_is_primary() -> None:
    nothing = replace(CONFIRM, splits=())
    metrics = metrics_of(["listops"], ["classify"])
    assert default_outcome(nothing, None, metrics) == "valid/accuracy"
    assert default_outcome(nothing, SEARCH, metrics) is None
    assert answer_plan(None, nothing, SEARCH, metrics, 3).family == 3


def test_every_primary_outcome_counts_in_the_family() -> None:
    asked = Answer(metric="second/accuracy", also=("first/depth",), margin=0.01, level=0.1)
    found = answer_plan(asked, CONFIRM, None, (), 5)
    assert found.outcomes == ("second/accuracy", "first/depth")
    assert (found.margin, found.level, found.family) == (0.01, 0.1, 10)
