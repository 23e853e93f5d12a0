"""Every plan survives the conversion to JSON."""

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


def make_plan_with_space(*dimensions: Dimension, constraints: tuple[Constraint, ...] = ()) -> Plan:
    arm = Arm(
        "baseline", "why", {"model": {"a": [1, 2.5, None]}}, (), Space(dimensions, constraints), (), "d"
    )
    return Plan("p", "q", "s", (arm,), None, None, (), Resources(), None, ())


@given(DOMAINS, VALUES)
def test_domains_keep_their_type(domain: Any, value: Any) -> None:
    plan = make_plan_with_space(
        Dimension("model.a", domain, (When("model.b", (value,)),), "somewhere"),
        constraints=(Constraint("model.a", "<=", 3),),
    )
    restored_plan = from_json(to_json(plan))
    assert restored_plan == plan
    assert repr(restored_plan.arms[0].space) == repr(plan.arms[0].space)


def test_text_is_canonical() -> None:
    text = to_json(make_plan_with_space())
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1, "name": "x"}', '{"format": 99}'])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(StoreError):
        from_json(text)


def test_invalid_plan_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"format": 1, "name": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(StoreError, match=str(tmp_path / "plan.json")):
        read_plan(SweepFolder(tmp_path))


def test_metrics_of_older_plans_are_readable() -> None:
    stored_metric = {"name": "error", "better": "min", "unit": "K", "low": 0.0, "high": None, "floor": 5.0}
    data = json.loads(to_json(make_plan_with_space())) | {
        "metrics": [stored_metric],
        "trainable": "mine:train",
    }
    assert from_json(json.dumps(data)).metrics == (Metric("error", "min", "K", 0.0, None, 5.0),)
    del data["metrics"]
    assert from_json(json.dumps(data)).metrics == ()


def _duplicate_number(data: dict[str, Any]) -> None:
    data["trials"].append({**data["trials"][0], "trial_id": "another"})


def _set_value(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        *parts, last_part = (int(part) if part.isdigit() else part for part in path.split("."))
        container: Any = data
        for part in parts:
            container = container[part]
        container[last_part] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_duplicate_number, "'arm-0', 'search', 0, 0"),
        (_set_value("arms.1.name", "arm-0"), "'arm-0'"),
        (_set_value("arms.0.settings", {}), "arm-0.*model.x"),
        (_set_value("trials.2.rank", None), "rank=None"),
        (_set_value("search", None), "phase='search'"),
        (_set_value("published", [{"arm": "a"}]), "{'arm': 'a'}"),
        (_set_value("trials.0.seed", "many"), "trials.0.seed"),
    ],
)
def test_plan_with_inconsistent_parts_is_refused(
    change: Callable[[dict[str, Any]], None], expected: str
) -> None:
    plan = make_plan(2, trials_per_arm=2, posthoc=({"model.shift": 0.5},))
    assert from_json(to_json(plan)) == plan
    data = json.loads(to_json(plan))
    change(data)
    with pytest.raises(StoreError, match=expected):
        from_json(json.dumps(data))


def test_plan_with_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="float"):
        to_json(dataclasses.replace(make_plan_with_space(), wall_clock_hours=float("nan")))


def test_plan_with_too_many_arms_is_refused() -> None:
    plan = make_plan(1, trials_per_arm=0, seeds=())
    arms = tuple(dataclasses.replace(plan.arms[0], name=f"arm-{number}") for number in range(10_001))
    with pytest.raises(StoreError, match="10,001"):
        from_json(to_json(dataclasses.replace(plan, arms=arms)))
