"""A task that is validated with its tests, as some are published, says so in plan and report."""

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from orchestrator.plan.display.render import render
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.types import Plan
from orchestrator.report.caveats.warning_texts import warning_texts
from tests.orchestrator.plan.small import BASELINE, spec
from tests.orchestrator.report.studies import make_study
from tests.support.specs.planned import plan


def planned(validate_on: str, splits: tuple[str, ...] = ("test",)) -> Plan:
    task = {"name": "lra_text", "length_max": 50, "validate_on": validate_on}
    confirm: dict[str, Any] = {"seeds": [1, 2, 3], "splits": list(splits)}
    return plan(spec(baseline={**BASELINE, "task": task}, confirm=confirm))


def text(made: Plan) -> str:
    console = Console(width=10_000, record=True)
    console.print(*render(made))
    return console.export_text()


def test_a_plan_says_that_selection_sees_test_data() -> None:
    made = planned("test")
    assert made.selected_on == ("test",)
    assert "Warning: Selection saw test data: valid has the examples of test, so that" in text(made)
    assert from_json(to_json(made)) == made


@pytest.mark.parametrize(("validate_on", "splits"), [("train", ("test",)), ("test", ())])
def test_where_it_does_not_or_no_test_is_read_nothing_is_said(
    validate_on: str, splits: tuple[str, ...]
) -> None:
    made = planned(validate_on, splits)
    assert made.selected_on == ()
    assert "Selection saw" not in text(made)
    assert "selected_on" not in to_json(made)


def test_a_report_says_so_before_its_numbers() -> None:
    made = make_study(2, 4, 0)
    assert not any("Selection saw" in each for each in warning_texts(made.report()))
    seen = replace(made, plan=replace(made.plan, selected_on=("near-iid",)))
    assert any(
        each.startswith("Selection saw test data: valid has the examples of near-iid")
        for each in warning_texts(seen.report())
    )
