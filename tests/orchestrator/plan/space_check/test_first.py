"""First points are completed for each arm, checked, and part of every trial id."""

from typing import Any

import pytest

from orchestrator.errors import InputError
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.space_check.first import with_found_points
from orchestrator.spec.load import read_spec, to_yaml
from tests.orchestrator.plan.small_specs import SEARCH, make_full_spec
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults

PUBLISHED_PARAMS = {"model.max_layers": 10, "train.ponder_weight": 0.1, "model.halt.threshold": 0.999}
SHALLOW_PARAMS = {**PUBLISHED_PARAMS, "model.max_layers": 15, "train.lr": 1e-3}


def plan_with_points(*first: Any, **search: Any) -> Any:
    return plan(make_full_spec(search={**SEARCH, "first": list(first), **search}))


def test_point_is_completed_for_each_arm_without_fields_that_the_arm_does_not_search() -> None:
    sweep_plan = plan_with_points(PUBLISHED_PARAMS, SHALLOW_PARAMS)
    complete = {**PUBLISHED_PARAMS, "train.lr": 5e-4}
    assert sweep_plan.baseline.first == (complete, SHALLOW_PARAMS)
    remaining = {"model.max_layers": 10, "train.lr": 5e-4}
    assert sweep_plan.arm("no-halt").first == (remaining, {"model.max_layers": 15, "train.lr": 1e-3})


def test_points_that_are_equal_in_an_arm_are_tried_once() -> None:
    sweep_plan = plan_with_points(PUBLISHED_PARAMS, {**PUBLISHED_PARAMS, "train.ponder_weight": 0.01})
    assert len(sweep_plan.baseline.first) == 2
    assert len(sweep_plan.arm("no-halt").first) == 1


def test_empty_point_is_the_settings_of_the_arm() -> None:
    search = {**SEARCH, "spaces": [], "first": [{}]}
    sweep_plan = plan(make_full_spec(search=search, arms={}))
    assert [dict(point) for point in sweep_plan.baseline.first] == [{"train.lr": 5e-4}]


def test_ids_depend_on_the_points() -> None:
    plain_plan, sweep_plan = plan_with_points(), plan_with_points(PUBLISHED_PARAMS)
    assert not {trial.trial_id for trial in plain_plan.trials} & {
        trial.trial_id for trial in sweep_plan.trials
    }
    assert '"first"' not in to_json(plain_plan)
    assert from_json(to_json(plain_plan)) == plain_plan
    assert from_json(to_json(sweep_plan)) == sweep_plan
    assert plain_plan.spec_digest == plan(make_full_spec()).spec_digest
    assert plain_plan.spec_digest != sweep_plan.spec_digest


@pytest.mark.parametrize(
    ("point", "path"),
    [
        ({**PUBLISHED_PARAMS, "train.lr": 1.0}, "search.first[0]"),
        ({**PUBLISHED_PARAMS, "model.heads": 2}, "search.first[0].model.heads"),
    ],
)
def test_point_outside_of_the_space_is_refused(point: Any, path: str) -> None:
    with expect_faults("invalid-value", path):
        plan_with_points(point)


def test_point_that_breaks_a_constraint_is_refused() -> None:
    with expect_faults("invalid-value", "search.first[0]"):
        plan_with_points(SHALLOW_PARAMS, constraints=["model.max_layers < 12"])


def test_more_points_than_trials_are_refused() -> None:
    points = [{**PUBLISHED_PARAMS, "train.lr": lr} for lr in (1e-4, 2e-4, 3e-4, 4e-4)]
    with expect_faults("invalid-value", "search.first"):
        plan_with_points(*points)


def test_point_with_an_inactive_field_is_refused() -> None:
    also = {
        "model.halt.unit": {"choice": ["sequence", "token"]},
        "train.lr": {"float": [1e-4, 2e-3], "when": {"model.halt.unit": ["token"]}},
    }
    search = {**SEARCH, "spaces": [], "also": also}
    point = {"model.halt.unit": "sequence", "train.lr": 1e-3}
    with expect_faults("invalid-value", "search.first[0].train.lr"):
        plan(make_full_spec(search={**search, "first": [point]}, arms={}))


@pytest.mark.parametrize("point", [3, {"from": "a", "train.lr": 1}, {"from": "a", "found": 3}])
def test_invalid_point_is_refused(point: Any, tmp_path: Any) -> None:
    with expect_faults("invalid-value", "search.first[0]"):
        read_points(tmp_path, point)


def read_points(folder: Any, *points: Any) -> Any:
    (folder / "spec.yaml").write_text(to_yaml(make_full_spec()))
    return read_spec(folder / "spec.yaml", [f"search.first={list(points)}"])


def test_points_of_another_sweep_are_written_into_the_spec(tmp_path: Any) -> None:
    source = read_points(tmp_path, {"from": "another"}, PUBLISHED_PARAMS)
    points_by_arm = {"baseline": PUBLISHED_PARAMS, "minus-gate": SHALLOW_PARAMS, "elsewhere": {}}
    completed_source = with_found_points(source, lambda name: {"another": points_by_arm}[name])
    sweep_plan = plan(completed_source)
    complete = {**PUBLISHED_PARAMS, "train.lr": 5e-4}
    assert sweep_plan.baseline.first == (complete,)
    assert sweep_plan.arm("minus-gate").first == (SHALLOW_PARAMS, complete)
    assert sweep_plan.arm("minus-transition").first == (complete,)
    (tmp_path / "launched.yaml").write_text(to_yaml(completed_source.spec))
    reread_source = read_spec(tmp_path / "launched.yaml")
    assert to_json(plan(reread_source)) == to_json(sweep_plan)
    assert with_found_points(reread_source, lambda name: {}) is reread_source


def test_missing_sweep_is_reported_at_its_point(tmp_path: Any) -> None:
    def raise_error(name: str) -> Any:
        raise InputError(f"no sweep named {name!r} in runs")

    with expect_faults("invalid-value", "search.first[0]"):
        with_found_points(read_points(tmp_path, {"from": "another"}), raise_error)
