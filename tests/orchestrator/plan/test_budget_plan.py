"""A budget is part of the plan, changes ids of confirm trials, and is printed."""

import pytest
from rich.console import Console

from orchestrator.plan.display.render import render
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.types import ArmLimits, Limits
from tests.orchestrator.plan.small_specs import SEARCH, make_spec
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults

ARM_BUDGET = {"device_hours": 2.0, "target": 0.95, "no_improvement": 2}


def trial_ids(sweep_plan, phase):
    return [trial.trial_id for trial in sweep_plan.trials if trial.phase == phase]


def print_plan(sweep_plan):
    console = Console(width=200, record=True)
    console.print(*render(sweep_plan))
    return console.export_text()


def test_budget_is_part_of_the_plan_and_its_json():
    sweep_plan = plan(
        make_spec(search=SEARCH, budget={"device_hours": 12.0, "flops": 1e15, "each_arm": ARM_BUDGET})
    )
    arm_limits = ArmLimits(device_hours=2.0, target=0.95, no_improvement=2)
    assert sweep_plan.limits == Limits(device_hours=12.0, flops=1e15, each_arm=arm_limits)
    assert from_json(to_json(sweep_plan)) == sweep_plan


def test_wall_clock_budget_leaves_limits_and_ids_unchanged():
    plain_plan, timed_plan = (
        plan(make_spec(search=SEARCH)),
        plan(make_spec(search=SEARCH, budget={"wall_clock_hours": 3.0})),
    )
    assert plain_plan.limits is timed_plan.limits is None
    assert plain_plan.trials == timed_plan.trials


def test_limits_of_a_search_change_ids_of_confirm_trials():
    plain_plan, limited_plan = (
        plan(make_spec(search=SEARCH)),
        plan(make_spec(search=SEARCH, budget={"each_arm": ARM_BUDGET})),
    )
    assert trial_ids(plain_plan, "search") == trial_ids(limited_plan, "search")
    assert not set(trial_ids(plain_plan, "confirm")) & set(trial_ids(limited_plan, "confirm"))
    sweep_limited_plan = plan(make_spec(search=SEARCH, budget={"device_hours": 5.0}))
    assert sweep_limited_plan.trials == plain_plan.trials, (
        "a sweep that stops and resumes must have the same trials"
    )


@pytest.mark.parametrize(
    ("budget", "code", "path"),
    [
        ({"flops": 1.0}, "invalid-value", "budget.flops"),
        ({"each_arm": {"no_improvement": 3}}, "conflicting-fields", "budget.each_arm.no_improvement"),
    ],
    ids=["flops of a trial", "whole search"],
)
def test_budget_that_ends_at_once_or_never_is_refused(budget, code, path):
    with expect_faults(code, path):
        plan(make_spec(search=SEARCH, budget=budget))


FEW_TRIALS = {"spaces": [], "also": {"train.lr": {"float": [1e-4, 1e-3]}}, "trials_per_arm": 3}


def test_warning_names_flops_that_no_trial_reaches():
    large_spec = make_spec(
        search={**SEARCH, **FEW_TRIALS}, budget={"flops": 1e15, "each_arm": {"flops": 1e15}}
    )
    output = " ".join(print_plan(plan(large_spec)).split())
    assert "budget.flops of 1 P" in output
    assert "budget.each_arm.flops of 1 P" in output
    trial_flops = plan(make_spec(search={**SEARCH, **FEW_TRIALS})).prices[0].train_flops_max
    tight_spec = make_spec(search={**SEARCH, **FEW_TRIALS}, budget={"flops": 150 * trial_flops})
    assert "budget.flops of" not in print_plan(plan(tight_spec))


def test_warning_names_searches_with_fewer_points_than_trials():
    also = {"model.max_layers": {"choice": [2, 3, 4]}}
    search = {**SEARCH, "spaces": [], "also": also, "stopper": None, "trials_per_arm": 5}
    assert "baseline 3 for 5" in print_plan(plan(make_spec(search=search)))
    for changes in ({"trials_per_arm": 3}, {"sampler": "grid"}):
        assert "baseline 3 for" not in print_plan(plan(make_spec(search={**search, **changes})))
