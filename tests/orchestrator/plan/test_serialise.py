"""Whatever a plan can hold comes back as it was."""

import dataclasses
import json
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


def test_another_format_is_refused() -> None:
    data = json.loads(to_json(with_space())) | {"format": 99}
    with pytest.raises(StoreError, match="a plan must have format 1, got 99: another version wrote it"):
        from_json(json.dumps(data))


def test_a_plan_of_not_numbers_is_no_plan() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        to_json(dataclasses.replace(with_space(), wall_clock_hours=float("nan")))
