"""What a plan says and refuses of compiled trainings."""

from typing import Any

import pytest

from orchestrator.errors import PlanError
from tests.orchestrator.plan.small import BASELINE, one_arm, spec
from tests.support.planned import plan


def compiled(**model: Any) -> dict[str, Any]:
    return {
        **BASELINE,
        "model": {**BASELINE["model"], **model},
        "train": {**BASELINE["train"], "compile": True},
    }


def test_an_arm_that_is_only_compiled_changes_nothing() -> None:
    with pytest.raises(PlanError, match=r"arm changes nothing against baseline: with train\.compile set"):
        plan(one_arm({"train.compile": True}))


def test_models_that_can_be_compiled_are_planned() -> None:
    made = plan(spec(baseline=compiled()))
    assert made.arms[0].settings["train"]["compile"] is True
    assert "compile" not in plan(spec()).arms[0].settings["train"]


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (
            {"name": "ndr", "max_layers": None, "geometric": False},
            "got ndr: relative attention has not been written as a region yet",
        ),
        ({"attention": "flash"}, "must be false where attention is flash"),
    ],
)
def test_a_model_that_cannot_is_refused(model: dict[str, Any], why: str) -> None:
    raw = compiled(**model)
    raw["model"] = {name: value for name, value in raw["model"].items() if value is not None}
    with pytest.raises(PlanError, match=why):
        plan(spec(baseline=raw))
