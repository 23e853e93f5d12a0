"""Trainables accept every draw of a planned search space."""

from typing import Any

import pytest

from tests.orchestrator.plan.small_specs import SEARCH, make_baseline, make_spec
from tests.support.specs.planned import plan


def plan_search(also: dict[str, Any], **parts: Any) -> Any:
    search = {**SEARCH, "spaces": [], "also": also, "stopper": None}
    return plan(make_spec(search=search, **parts))


def test_conditions_on_settings_remove_dimensions() -> None:
    warmed = {"train.warmup_steps": {"int": [1, 50], "when": {"train.schedule": ["cosine"]}}}
    free = {"train.lr": {"float": [1e-3, 1e-2]}}
    arms = {"falling": {"why": "slower in the end", "set": {"train.schedule": "cosine"}}}
    sweep_plan = plan_search(warmed | free, arms=arms)
    assert sweep_plan.baseline.space.paths == ("train.lr",)
    assert sweep_plan.baseline.dropped == ("train.warmup_steps",)
    assert set(sweep_plan.arm("falling").space.paths) == {"train.lr", "train.warmup_steps"}


def test_conditions_on_dimensions_hold_before_bounds_are_tried() -> None:
    also = {
        "train.schedule": {"choice": ["constant", "cosine"]},
        "train.warmup_steps": {"int": [1, 50], "when": {"train.schedule": ["cosine"]}},
    }
    assert plan_search(also).baseline.space.paths == ("train.schedule", "train.warmup_steps")


def test_end_that_no_step_reaches_is_not_tried() -> None:
    also = {
        "model.halt.threshold": {"float": [0.5, 1.05], "step": 0.25},
        "model.heads": {"int": [2, 5], "step": 2},
    }
    assert plan_search(also, baseline=make_baseline(width=16)).baseline.space.paths == tuple(also)


def test_values_excluded_by_constraints_are_not_tried() -> None:
    """The optimiser space has warm-ups of 8000 steps, and a constraint limits the warm-up to the training."""
    scheduled = {
        **make_baseline(),
        "train": {"steps": 400, "schedule": "rsqrt", "warmup_steps": 50, "report_every": 10},
    }
    sweep_plan = plan(make_spec(baseline=scheduled, search={**SEARCH, "spaces": ["optimiser"], "also": {}}))
    assert "train.warmup_steps" in sweep_plan.baseline.space.paths
    assert sweep_plan.baseline.space.constraints


def test_digest_depends_on_settings_and_space() -> None:
    first = plan_search({"train.lr": {"float": [1e-3, 1e-2]}})
    second = plan_search({"train.lr": {"float": [1e-3, 2e-2]}})
    third = plan_search({"train.lr": {"float": [1e-3, 1e-2]}}, baseline=make_baseline(width=32))
    assert len({sweep_plan.baseline.digest for sweep_plan in (first, second, third)}) == 3


LR = {"train.lr": {"float": [1e-4, 1e-3]}}
DEPTH = {"model.max_layers": {"int": [2, 4]}}


def plan_with_dropped(*dropped: str, sets: dict[str, Any], also: dict[str, Any]) -> Any:
    return plan_search(also, arms={"arm": {"why": "as it says", "set": sets, "drop": list(dropped)}})


@pytest.mark.parametrize(
    ("dropped", "sets", "also"),
    [
        (("train.lr", "model.max_layers"), {"model.gate": False}, LR | DEPTH),
        (("model.max_layers",), {"model.halt": None}, LR | DEPTH),
        (
            ("model.max_layers",),
            {"train.schedule": "cosine"},
            LR | {"model.max_layers": {"int": [2, 4], "when": {"train.schedule": ["constant"]}}},
        ),
    ],
    ids=[
        "all, so that it is not searched",
        "a size that stays, which the arm may be about",
        "what is not there",
    ],
)
def test_arm_may_drop_dimensions(dropped: Any, sets: Any, also: Any) -> None:
    assert not set(dropped) & set(plan_with_dropped(*dropped, sets=sets, also=also).arm("arm").space.paths)
