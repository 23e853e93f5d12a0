"""Plans and reports warn if a task validates with its test examples."""

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from orchestrator.plan.answer import TEST_DATA_SELECTION_WARNING
from orchestrator.plan.display.render import render
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.types import Plan
from orchestrator.report.caveats.warning_texts import warning_texts
from tests.orchestrator.plan.small_specs import BASELINE, make_spec
from tests.orchestrator.report.studies import make_study
from tests.support.specs.planned import plan


def plan_with_validation(validate_on: str, splits: tuple[str, ...] = ("test",)) -> Plan:
    task = {"name": "lra_text", "length_max": 50, "validate_on": validate_on}
    confirm: dict[str, Any] = {"seeds": [1, 2, 3], "splits": list(splits)}
    return plan(make_spec(baseline={**BASELINE, "task": task}, confirm=confirm))


def print_plan(sweep_plan: Plan) -> str:
    console = Console(width=10_000, record=True)
    console.print(*render(sweep_plan))
    return console.export_text()


def test_plan_warns_that_selection_sees_test_data() -> None:
    sweep_plan = plan_with_validation("test")
    assert sweep_plan.selected_on == ("test",)
    assert f"Warning: {TEST_DATA_SELECTION_WARNING.format(splits='test')}" in print_plan(sweep_plan)
    assert from_json(to_json(sweep_plan)) == sweep_plan


@pytest.mark.parametrize(("validate_on", "splits"), [("train", ("test",)), ("test", ())])
def test_plan_without_shared_test_data_has_no_warning(validate_on: str, splits: tuple[str, ...]) -> None:
    sweep_plan = plan_with_validation(validate_on, splits)
    assert sweep_plan.selected_on == ()
    assert "Selection saw" not in print_plan(sweep_plan)
    assert "selected_on" not in to_json(sweep_plan)


def test_report_warns_before_its_results() -> None:
    sweep_plan = make_study(2, 4, 0)
    warning = TEST_DATA_SELECTION_WARNING.format(splits="near-iid")
    assert warning not in warning_texts(sweep_plan.report())
    leaking = replace(sweep_plan, plan=replace(sweep_plan.plan, selected_on=("near-iid",)))
    assert warning in warning_texts(leaking.report())
