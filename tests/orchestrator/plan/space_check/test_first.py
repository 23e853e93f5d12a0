"""Points that are tried first: made whole for each arm, checked, shown, and part of every id."""

from typing import Any

import pytest
from rich.console import Console

from orchestrator.errors import InputError, PlanError, SpecError
from orchestrator.plan.display.render import render
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.space_check.first import with_found_points
from orchestrator.spec.load import read_spec, to_yaml
from tests.orchestrator.plan.small import SEARCH, baseline, full
from tests.support.specs.planned import plan

PUBLISHED = {"model.max_layers": 10, "train.ponder_weight": 0.1, "model.halt.threshold": 0.999}
SHALLOW = {**PUBLISHED, "model.max_layers": 15, "train.lr": 1e-3}


def planned(*first: Any, **search: Any) -> Any:
    return plan(full(search={**SEARCH, "first": list(first), **search}))


def reported(*first: Any, **search: Any) -> str:
    with pytest.raises(PlanError) as caught:
        planned(*first, **search)
    return str(caught.value)


def test_a_point_is_made_whole_for_each_arm_and_loses_what_the_arm_does_not_search() -> None:
    found = planned(PUBLISHED, SHALLOW)
    whole = {**PUBLISHED, "train.lr": 5e-4}
    assert found.baseline.first == (whole, SHALLOW)
    left = {"model.max_layers": 10, "train.lr": 5e-4}
    assert found.arm("no-halt").first == (left, {"model.max_layers": 15, "train.lr": 1e-3})


def test_points_that_become_equal_in_an_arm_are_tried_once() -> None:
    found = planned(PUBLISHED, {**PUBLISHED, "train.ponder_weight": 0.01})
    assert len(found.baseline.first) == 2
    assert len(found.arm("no-halt").first) == 1


def test_an_empty_point_is_the_arms_own_settings() -> None:
    search = {**SEARCH, "spaces": [], "first": [{}]}
    found = plan(full(search=search, arms={}))
    assert [dict(each) for each in found.baseline.first] == [{"train.lr": 5e-4}]


def test_ids_know_the_points_and_plans_without_them_are_as_before() -> None:
    plain, found = planned(), planned(PUBLISHED)
    assert not {trial.trial_id for trial in plain.trials} & {trial.trial_id for trial in found.trials}
    assert '"first"' not in to_json(plain)
    assert from_json(to_json(plain)) == plain
    assert from_json(to_json(found)) == found
    assert plain.spec_digest == plan(full()).spec_digest
    assert plain.spec_digest != found.spec_digest


def test_the_plan_shows_them() -> None:
    console = Console(width=200, record=True, quiet=False, file=None)
    with console.capture() as shown:
        for part in render(planned(PUBLISHED)):
            console.print(part)
    text = shown.get()
    assert "tries first train.ponder_weight 0.1, model.halt.threshold 0.999, model.max_layers 10" in text
    own = plan(full(search={**SEARCH, "spaces": [], "first": [{}]}, arms={}))
    with console.capture() as shown:
        for part in render(own):
            console.print(part)
    assert "tries first train.lr 0.0005 (its own settings)" in shown.get()


@pytest.mark.parametrize(
    ("point", "message"),
    [
        (
            {**PUBLISHED, "train.lr": 1.0},
            "search.first[0]: must be within the search's range of train.lr, 0.0001 to 0.002, log, got 1.0",
        ),
        (
            {"train.lr": 1e-3},
            "got 6; baseline has it so itself: name model.max_layers in the point, or widen the range",
        ),
        ({**PUBLISHED, "model.heads": 2}, "sets model.heads, which the search does not vary"),
        ({"from": "another"}, "must say what another found: plan the spec with `haltsweep plan`"),
    ],
)
def test_a_point_outside_of_the_space_is_refused(point: Any, message: str) -> None:
    assert message in reported(point)


def test_a_point_that_breaks_a_constraint_or_cannot_be_trained_is_refused() -> None:
    task = {"name": "listops", "train_length_max": 50}
    also = {"model.chunk.size": {"int": [10, 60]}}
    chunked = {"name": "tlb", "width": 16, "heads": 2, "chunk": {"by": "size", "size": 20}}
    search = {**SEARCH, "spaces": ["chunking"], "also": also, "stopper": None}
    point = {"model.chunk.size": 60, "model.memory.slots": 5}
    with pytest.raises(PlanError, match=r"must satisfy model.chunk.size <= task.train_length_max"):
        plan(
            full(
                baseline={**baseline(), "task": task, "model": chunked},
                arms={},
                posthoc={},
                search={**search, "first": [point]},
            )
        )


def test_more_points_than_trials_are_refused() -> None:
    points = [{**PUBLISHED, "train.lr": lr} for lr in (1e-4, 2e-4, 3e-4, 4e-4)]
    assert "search.first: must be at most trials_per_arm, 3, got 4 points" in reported(*points)


def test_what_no_arm_searches_under_the_rest_of_the_point_is_refused() -> None:
    also = {
        "model.halt.unit": {"choice": ["sequence", "token"]},
        "train.lr": {"float": [1e-4, 2e-3], "when": {"model.halt.unit": ["token"]}},
    }
    search = {**SEARCH, "spaces": [], "also": also}
    point = {"model.halt.unit": "sequence", "train.lr": 1e-3}
    with pytest.raises(
        PlanError, match=r"sets train\.lr, which no arm searches where the rest of the point holds"
    ):
        plan(full(search={**search, "first": [point]}, arms={}))


@pytest.mark.parametrize(
    ("point", "message"),
    [
        (3, r"search.first\[0\]: must be a mapping from field path to value, or \{from: SWEEP\}, got 3"),
        ({"lr": 1}, "a path must begin with task, model or train, got 'lr'"),
        ({"from": "a", "train.lr": 1}, "must name a sweep alone where it has 'from', got train.lr beside it"),
        ({"from": 3}, "must have the name of a sweep as 'from', got 3"),
        ({"from": "a", "found": 3}, "must have a mapping from arm to values as 'found', got 3"),
    ],
)
def test_what_is_no_point_is_refused(point: Any, message: str, tmp_path: Any) -> None:
    with pytest.raises(SpecError, match=message):
        read(tmp_path, point)


def read(folder: Any, *points: Any) -> Any:
    (folder / "spec.yaml").write_text(to_yaml(full()))
    return read_spec(folder / "spec.yaml", [f"search.first={list(points)}"])


def test_what_another_sweep_found_is_written_into_the_spec(tmp_path: Any) -> None:
    source = read(tmp_path, {"from": "another"}, PUBLISHED)
    found = {"baseline": PUBLISHED, "minus-gate": SHALLOW, "elsewhere": {}}
    known = with_found_points(source, lambda name: {"another": found}[name])
    made = plan(known)
    whole = {**PUBLISHED, "train.lr": 5e-4}
    assert made.baseline.first == (whole,)
    assert made.arm("minus-gate").first == (SHALLOW, whole)
    assert made.arm("minus-transition").first == (whole,)
    (tmp_path / "launched.yaml").write_text(to_yaml(known.spec))
    again = read_spec(tmp_path / "launched.yaml")
    assert to_json(plan(again)) == to_json(made)
    assert with_found_points(again, lambda name: {}) is again


def test_a_sweep_that_is_not_there_is_told_with_the_line(tmp_path: Any) -> None:
    def found(name: str) -> Any:
        raise InputError(f"no sweep named {name!r} in runs")

    with pytest.raises(SpecError, match=r"search.first\[0\]: no sweep named 'another' in runs"):
        with_found_points(read(tmp_path, {"from": "another"}), found)
