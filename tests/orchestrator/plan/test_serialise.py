"""Whatever a plan can hold comes back as it was."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StoreError
from orchestrator.identity import SweepFolder
from orchestrator.plan.serialise import from_json, read_plan, to_json
from orchestrator.plan.types import Arm, Plan
from orchestrator.spec.section import Resources
from search_spaces.dimensions import Choice, Constraint, Dimension, Fixed, Float, Int, Space, When
from tests.support.specs.plans import make_plan
from trainables.metrics import Metric

VALUES = st.one_of(
    st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.none()
)
DOMAINS = st.one_of(
    st.just(Float(0.0, 1.0)),
    st.just(Float(1.0, 2.0, log=True)),
    st.just(Int(0, 1)),
    st.just(Int(2, 8, step=2)),
    VALUES.map(Fixed),
    st.lists(VALUES, min_size=1, max_size=3, unique_by=repr).map(lambda v: Choice((v[0],))),
)


def with_space(*dimensions: Dimension, constraints: tuple[Constraint, ...] = ()) -> Plan:
    arm = Arm(
        "baseline", "why", {"model": {"a": [1, 2.5, None]}}, (), Space(dimensions, constraints), (), "d"
    )
    return Plan("p", "q", "s", (arm,), None, None, (), Resources(), None, ())


@given(DOMAINS, VALUES)
def test_domains_come_back_with_their_type(domain: Any, value: Any) -> None:
    plan = with_space(
        Dimension("model.a", domain, (When("model.b", (value,)),), "somewhere"),
        constraints=(Constraint("model.a", "<=", 3),),
    )
    back = from_json(to_json(plan))
    assert back == plan
    assert repr(back.arms[0].space) == repr(plan.arms[0].space)


def test_examples_of_halting_come_back_and_plans_without_are_the_bytes_they_were() -> None:
    plan = make_plan()
    assert plan.confirm is not None
    assert "halting_examples" not in to_json(plan)
    keeps = dataclasses.replace(plan, confirm=dataclasses.replace(plan.confirm, halting_examples=8))
    assert from_json(to_json(keeps)) == keeps


def test_text_is_canonical() -> None:
    text = to_json(with_space())
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "name": "x"}', "not json"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(StoreError, match="a plan must be JSON as haltsweep writes it, got "):
        from_json(text)


@pytest.mark.parametrize("held", [b"", b"{}", b"\xfc\xff\x00", b'{"format": 99}'])
def test_a_file_that_is_no_plan_is_named_with_what_to_do(held: bytes, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(held)
    with pytest.raises(StoreError) as caught:
        read_plan(SweepFolder(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path / 'plan.json'}: a plan must ")
    assert str(caught.value).endswith("; restore the file from a backup, or name the folder of a sweep")


def test_metrics_of_plans_from_before_they_said_so_much_are_read() -> None:
    written = {"name": "error", "better": "min", "unit": "K", "low": 0.0, "high": None, "floor": 5.0}
    data = json.loads(to_json(with_space())) | {"metrics": [written], "trainable": "mine:train"}
    assert from_json(json.dumps(data)).metrics == (Metric("error", "min", "K", 0.0, None, 5.0),)
    del data["metrics"]
    assert from_json(json.dumps(data)).metrics == ()


def _same_trial_twice(data: dict[str, Any]) -> None:
    data["trials"].append(data["trials"][0])


def _same_number_twice(data: dict[str, Any]) -> None:
    data["trials"].append({**data["trials"][0], "trial_id": "another"})


def _at(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        *parts, last = (int(each) if each.isdigit() else each for each in path.split("."))
        inside: Any = data
        for part in parts:
            inside = inside[part]
        inside[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_at("arms", []), "a plan must have a name and arms, got the name 'synthetic' and 0 arms"),
        (_same_trial_twice, "trials must be unique, got '[0-9a-f]+' twice"),
        (_same_number_twice, "trials must be unique, got .'arm-0', 'search', 0, 0. twice"),
        (_at("arms.1.name", "arm-0"), "arms must be unique, got 'arm-0' twice"),
        (_at("arms.1.reference", "gone"), "compared with an arm of the plan, got 'gone' for arm-1"),
        (_at("arms.0.settings", {}), "the settings of arm-0 must have a place for model.x"),
        (_at("trials.0.arm", "gone"), "a trial must be of an arm and a phase of the plan"),
        (_at("trials.2.rank", None), "a trial after the search must have a rank below confirm.best"),
        (_at("trials.2.rank", 7), "a trial after the search must have a rank below confirm.best"),
        (_at("trials.3.seed", 101), "a rank is confirmed once with each seed"),
        (_at("trials.4.seed", 7), "a posthoc trial must have a confirm trial to read again"),
        (_at("trials.4.overrides", {"a.b": 1}), "the settings of arm-0 must have a place for a.b"),
        (_at("factors", [*map(str, range(14))]), "every combination of factors must be an arm, got 14"),
        (_at("search.objectives", []), "a search must have objectives"),
        (_at("search.sampler", {}), "a search must have objectives, and a sampler and a stopper by name"),
        (_at("search", None), "a trial must be of an arm and a phase of the plan"),
        (_at("published", [{"arm": "a"}]), "a published row must have arm, split, metric, value"),
        (_at("trials.0.seed", "many"), "trials.0.seed"),
        (_at("arms.0.space", {"dimensions": 3}), "arms.0.space.dimensions"),
    ],
)
def test_a_plan_whose_parts_do_not_fit_is_refused(
    change: Callable[[dict[str, Any]], None], expected: str
) -> None:
    plan = make_plan(2, trials_per_arm=2, posthoc=({"model.shift": 0.5},))
    assert from_json(to_json(plan)) == plan
    data = json.loads(to_json(plan))
    change(data)
    with pytest.raises(StoreError, match=expected):
        from_json(json.dumps(data))


def test_deep_nesting_is_refused() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    with pytest.raises(StoreError, match="a plan must be JSON as haltsweep writes it, got "):
        from_json('{"format": 1, "name": ' + deep + "}")


def test_another_format_is_refused() -> None:
    data = json.loads(to_json(with_space())) | {"format": 99}
    with pytest.raises(StoreError, match="a plan must have format 1, got 99: another version wrote it"):
        from_json(json.dumps(data))


def test_a_plan_of_not_numbers_is_no_plan() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        to_json(dataclasses.replace(with_space(), wall_clock_hours=float("nan")))


def test_a_plan_of_more_arms_than_any_planner_makes_is_refused() -> None:
    plan = make_plan(1, trials_per_arm=0, seeds=())
    arms = tuple(dataclasses.replace(plan.arms[0], name=f"arm-{each}") for each in range(10_001))
    with pytest.raises(StoreError, match=r"at most 10,000 arms and 1,000,000 trials, got 10,001 and 0"):
        from_json(to_json(dataclasses.replace(plan, arms=arms)))
