"""1 and 1.0 are one number wherever settings are compared, True is none; and no fault is told for another."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.planner import plan
from orchestrator.spec.types import CustomSpec
from search_spaces.dimensions import equality_key
from tests.orchestrator.plan.small import BASELINE, baseline, one_arm, spec
from tests.support.specs.planned import plan as plan_quickly
from tests.support.training_code.own_code import BONUS, forgotten

UNIT = {"unit": "token"}
WRITTEN_OUT = {"unit": "token", "threshold": 0.999}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        ([1, {"a": 2}], (1.0, {"a": 2.0}), True),
        ({"a": True}, {"a": 1}, False),
        ({"a": 1, "b": None}, {"b": None, "a": 1}, True),
        ({}, [], False),
        ("1", 1, False),
        (None, False, False),
    ],
)
def test_what_is_the_same_has_one_key(one: Any, other: Any, same: bool) -> None:
    assert (equality_key(one) == equality_key(other)) is same


def test_cells_of_a_grid_that_are_one_system_as_they_are_read_are_refused() -> None:
    asked = spec(
        grid={"model.halt": [UNIT, WRITTEN_OUT]}, arms={"arm": {"why": "x", "set": {"train.lr": 0.01}}}
    )
    with pytest.raises(PlanError) as caught:
        plan_quickly(asked)
    (fault,) = caught.value.faults
    assert fault.path == "grid.model.halt"
    assert fault.message.endswith(
        "has the same settings as baseline[model.halt={unit: token}]: remove one of them"
    )


def test_cells_that_differ_in_one_field_of_a_part_are_not() -> None:
    asked = spec(grid={"model.halt": [UNIT, {**WRITTEN_OUT, "threshold": 0.5}, None]})
    assert len(plan_quickly(asked).arms) == 3


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Training code that says nothing of its settings."""
    (tmp_path / "plain_own.py").write_text(BONUS)
    with forgotten(tmp_path):
        monkeypatch.syspath_prepend(tmp_path)
        yield


def own(base: dict[str, Any], *arms: dict[str, Any], **parts: Any) -> CustomSpec:
    written = {
        "name": "own",
        "question": "Is it told?",
        "trainable": "plain_own:train",
        "baseline": base,
        "arms": {f"arm-{place}": {"why": "as it says", "set": sets} for place, sets in enumerate(arms)},
        "confirm": {"seeds": [1, 2]},
    }
    return CustomSpec.model_validate({**written, **parts}, context={"own": True})


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("base", "sets"),
    [
        ({"lr": 1}, {"lr": 1.0}),
        ({"sizes": [1, 2]}, {"sizes": [1.0, 2]}),
        ({"part": {"a": 0}}, {"part.a": 0.0}),
    ],
)
def test_the_same_number_written_otherwise_is_no_arm_of_own_code(base: Any, sets: Any) -> None:
    with pytest.raises(PlanError, match=r"arms\.arm-0\.set\S*: must differ from the baseline"):
        plan(own(base, sets))


@pytest.mark.usefixtures("plain")
def test_two_arms_of_own_code_are_not_told_apart_by_how_a_number_is_written() -> None:
    with pytest.raises(PlanError, match=r"arms\.arm-1: has the same settings as arm-0"):
        plan(own({"width": 4}, {"width": 8}, {"width": 8.0}))


@pytest.mark.usefixtures("plain")
def test_nor_are_readings() -> None:
    with (Path(sys.path[0]) / "plain_own.py").open("a") as code:
        code.write(
            "\n\ndef evaluate(settings, folder):\n    return {}\n\nhaltsweep = {'evaluate': evaluate}\n"
        )
    with pytest.raises(PlanError, match=r"posthoc\.bonus\[0\]: must differ from what is trained: 1\.0"):
        plan(own({"bonus": 1}, posthoc={"bonus": [1.0]}))
    assert plan(own({"bonus": 1}, posthoc={"bonus": [1.5]})).posthoc


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("base", "sets"), [({"width": 1}, {"width": True}), ({"part": {"a": 1}}, {"part": {"a": True}})]
)
def test_a_switch_is_no_number(base: Any, sets: Any) -> None:
    assert len(plan(own(base, sets)).arms) == 2


FAULTY: dict[str, Any] = {
    "task": {**BASELINE, "task": {"name": "listops", "trees": -5}},
    "train": {**BASELINE, "train": {**BASELINE["train"], "lr": -1}},
    "model": baseline(width=-1),
}


@pytest.mark.parametrize("part", FAULTY)
def test_what_defaults_hold_is_not_missed_where_another_setting_is_wrong(part: str) -> None:
    arms = {"arm": {"why": "because", "set": {"model.halt.unit": "token"}}}
    for asked in ({"arms": arms}, {"grid": {"model.halt.threshold": [0.5, 0.9]}}):
        with pytest.raises(PlanError) as caught:
            plan_quickly(spec(baseline=FAULTY[part], **asked))
        assert [fault.path.split(".")[:2] for fault in caught.value.faults] == [["baseline", part]]


def test_what_is_nowhere_is_told_beside_another_fault() -> None:
    with pytest.raises(PlanError) as caught:
        plan_quickly(one_arm({"model.hallt.unit": "token"}, baseline=FAULTY["task"]))
    assert any("model.hallt.unit does not exist" in fault.message for fault in caught.value.faults)
