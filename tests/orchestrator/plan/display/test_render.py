"""The dry run prints the important facts and warnings of a plan."""

import re
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from orchestrator.plan.display.render import plan_warnings, render
from orchestrator.plan.types import Change
from search_spaces.dimensions import Space
from tests.orchestrator.plan.small_specs import make_full_spec, make_spec
from tests.orchestrator.report.studies import make_study
from tests.support.specs.planned import plan


def print_plan(sweep_plan: Any) -> str:
    console = Console(file=StringIO(), width=100, highlight=False)
    for part in render(sweep_plan):
        console.print(part)
    output = console.file
    assert isinstance(output, StringIO)
    return output.getvalue()


@pytest.fixture(scope="module")
def plan_text() -> str:
    return print_plan(plan(make_full_spec()))


@pytest.mark.parametrize(
    "line",
    [
        "minus-gate  plain feed-forward block",
        "model.gate  true  ->  false",
        "searches train.lr: 0.0001 to 0.002, log",
        "With 3 seeds and 4 comparisons",
    ],
)
def test_plan_prints_important_facts(plan_text: str, line: str) -> None:
    assert line in plan_text


@pytest.mark.parametrize(
    ("path", "value", "expected"), [("model.layers", 6, True), ("model.layers", 20, False)]
)
def test_warning_names_an_arm_that_the_baseline_search_may_find(
    path: str, value: Any, expected: bool
) -> None:
    sweep_plan = make_study(2, 3, 1, thresholds=()).plan
    arm = replace(sweep_plan.arms[1], changes=(Change(path, None, value),))
    warnings = plan_warnings(replace(sweep_plan, arms=(sweep_plan.arms[0], arm)))
    assert len(warnings) == expected
    assert all("arm-0" in line and "arm-1" in line for line in warnings)
    # Without a searched field, the difference is the effect of the search itself.
    assert plan_warnings(replace(sweep_plan, arms=(sweep_plan.arms[0], replace(arm, space=Space(()))))) == []


@pytest.mark.parametrize(("split", "expected"), [("lra", True), ("near-iid", False)])
def test_warning_names_a_published_value_that_no_trial_measures(split: str, expected: bool) -> None:
    row = {"arm": "baseline", "metric": "accuracy", "values": {split: 0.7}, "source": "a table"}
    text = " ".join(print_plan(plan(make_spec(published=[row]))).split())
    assert bool(re.search("Warning: .*published .*accuracy of baseline ", text)) is expected
