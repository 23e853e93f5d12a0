"""What a budget becomes in a plan, what it changes in ids, and what people are told of it."""

import pytest
from rich.console import Console

from orchestrator.errors import PlanError
from orchestrator.plan.display.render import render
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.types import ArmLimits, Limits
from tests.orchestrator.plan.small import SEARCH, spec
from tests.support.specs.planned import plan

EACH = {"device_hours": 2.0, "target": 0.95, "no_improvement": 2}


def ids(made, phase):
    return [trial.trial_id for trial in made.trials if trial.phase == phase]


def text(made):
    console = Console(width=200, record=True)
    console.print(*render(made))
    return console.export_text()


def test_a_budget_is_in_the_plan_and_comes_back():
    made = plan(spec(search=SEARCH, budget={"device_hours": 12.0, "flops": 1e15, "each_arm": EACH}))
    each = ArmLimits(device_hours=2.0, target=0.95, no_improvement=2)
    assert made.limits == Limits(device_hours=12.0, flops=1e15, each_arm=each)
    assert from_json(to_json(made)) == made


def test_no_budget_and_wall_clock_alone_leave_no_limits_and_the_same_ids():
    plain, timed = plan(spec(search=SEARCH)), plan(spec(search=SEARCH, budget={"wall_clock_hours": 3.0}))
    assert plain.limits is timed.limits is None
    assert plain.trials == timed.trials


def test_what_may_end_a_search_is_in_the_ids_of_what_is_confirmed():
    plain, limited = plan(spec(search=SEARCH)), plan(spec(search=SEARCH, budget={"each_arm": EACH}))
    assert ids(plain, "search") == ids(limited, "search")
    assert not set(ids(plain, "confirm")) & set(ids(limited, "confirm"))
    whole = plan(spec(search=SEARCH, budget={"device_hours": 5.0}))
    assert whole.trials == plain.trials, "a sweep that stops in between and goes on finds the same"


def test_people_are_told_what_ends_what():
    shown = " ".join(text(plan(spec(search=SEARCH, budget={"flops": 2e15, "each_arm": EACH}))).split())
    assert "Nothing more begins after 2 P FLOPs of training." in shown
    assert (
        "The search of each arm begins no further trial after 2 hours of work times CPU cores or "
        "valid/accuracy of 0.95 or 2 trials in a row that ended without a better valid/accuracy" in shown
    )


@pytest.mark.parametrize(("hours", "expected"), [(1.0, "after 1 hour of"), (0.5, "after 0.5 hours of")])
def test_one_hour_is_one(hours, expected):
    budget = {"wall_clock_hours": hours, "device_hours": hours}
    said = " ".join(text(plan(spec(search=SEARCH, budget=budget))).split())
    assert f"Nothing more begins {expected} wall clock or {expected.removeprefix('after ')} work" in said


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"flops": 1.0}, r"budget\.flops: must be at least the FLOPs of one trial, .* got 1\.0"),
        ({"each_arm": {"flops": 1e6}}, r"budget\.each_arm\.flops: must be at least the FLOPs of one trial"),
        ({"each_arm": {"target": 0.0}}, "must be better than the worst value of valid/accuracy, got 0"),
    ],
)
def test_what_the_first_trial_uses_up_or_reaches_is_refused(budget, expected):
    with pytest.raises(PlanError, match=expected):
        plan(spec(search=SEARCH, budget=budget))


def test_a_target_beyond_the_range_is_refused():
    with pytest.raises(PlanError, match=r"budget\.each_arm\.target: must be a value that valid/accuracy can"):
        plan(spec(search=SEARCH, budget={"each_arm": {"target": 95.0}}))


def test_a_search_that_waits_for_all_its_trials_is_refused():
    with pytest.raises(
        PlanError, match=r"no_improvement: must be fewer than the trials of a search, at most 3"
    ):
        plan(spec(search=SEARCH, budget={"each_arm": {"no_improvement": 3}}))


FEW = {"spaces": [], "also": {"train.lr": {"float": [1e-4, 1e-3]}}, "trials_per_arm": 3}


def test_people_are_told_of_flops_beyond_all_that_is_trained():
    asked = spec(search={**SEARCH, **FEW}, budget={"flops": 1e15, "each_arm": {"flops": 1e15}})
    shown = " ".join(text(plan(asked)).split())
    assert "Warning: budget.flops of 1 P ends nothing, for all trials together train with at most" in shown
    assert (
        "budget.each_arm.flops of 1 P ends nothing, for the search of no arm trains with more than" in shown
    )
    most = plan(spec(search={**SEARCH, **FEW})).prices[0].train_flops_max
    tight = spec(search={**SEARCH, **FEW}, budget={"flops": 150 * most})
    assert "ends nothing" not in text(plan(tight))


def test_people_are_told_of_fewer_points_than_trials():
    also = {"model.max_layers": {"choice": [2, 3, 4]}}
    five = {**SEARCH, "spaces": [], "also": also, "stopper": None, "trials_per_arm": 5}
    assert "fewer points than trials of the search: baseline 3 for 5." in text(plan(spec(search=five)))
    for fewer in ({"trials_per_arm": 3}, {"sampler": "grid"}):
        assert "fewer points" not in text(plan(spec(search={**five, **fewer})))
