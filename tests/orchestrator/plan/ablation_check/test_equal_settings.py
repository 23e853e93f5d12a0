"""Settings are compared by value: 1 equals 1.0, and True equals no number."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.planner import plan
from orchestrator.spec.types import CustomSpec
from search_spaces.dimensions import equality_key
from tests.orchestrator.plan.small_specs import BASELINE, make_baseline, make_spec
from tests.support.specs.planned import plan as plan_quickly
from tests.support.specs.refusals import expect_faults
from tests.support.training_code.own_code import BONUS, forgotten


@pytest.mark.parametrize(
    ("first", "second", "expected"),
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
def test_equal_values_have_equal_keys(first: Any, second: Any, expected: bool) -> None:
    assert (equality_key(first) == equality_key(second)) is expected


@pytest.fixture
def plain_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write training code that does not declare its settings."""
    (tmp_path / "plain_own.py").write_text(BONUS)
    with forgotten(tmp_path):
        monkeypatch.syspath_prepend(tmp_path)
        yield


def make_custom_spec(baseline: dict[str, Any], *arms: dict[str, Any], **parts: Any) -> CustomSpec:
    content = {
        "name": "own",
        "question": "Is it reported?",
        "trainable": "plain_own:train",
        "baseline": baseline,
        "arms": {f"arm-{number}": {"why": "as it says", "set": sets} for number, sets in enumerate(arms)},
        "confirm": {"seeds": [1, 2]},
    }
    return CustomSpec.model_validate({**content, **parts}, context={"own": True})


@pytest.mark.usefixtures("plain_code")
def test_number_written_differently_is_no_arm_of_custom_code() -> None:
    with expect_faults("arm-has-no-effect", "arms.arm-0.set.sizes"):
        plan(make_custom_spec({"sizes": [1, 2]}, {"sizes": [1.0, 2]}))
    assert len(plan(make_custom_spec({"width": 1}, {"width": True})).arms) == 2, "a boolean is no number"


@pytest.mark.usefixtures("plain_code")
def test_reevaluation_that_differs_only_in_number_format_is_refused() -> None:
    with (Path(sys.path[0]) / "plain_own.py").open("a") as code:
        code.write(
            "\n\ndef evaluate(settings, folder):\n    return {}\n\nhaltsweep = {'evaluate': evaluate}\n"
        )
    with expect_faults("re-evaluation-has-no-effect", "posthoc.bonus[0]"):
        plan(make_custom_spec({"bonus": 1}, posthoc={"bonus": [1.0]}))
    assert plan(make_custom_spec({"bonus": 1}, posthoc={"bonus": [1.5]})).posthoc


FAULTY: dict[str, Any] = {
    "task": {**BASELINE, "task": {"name": "listops", "trees": -5}},
    "train": {**BASELINE, "train": {**BASELINE["train"], "lr": -1}},
    "model": make_baseline(width=-1),
}


@pytest.mark.parametrize("part", FAULTY)
def test_fault_of_one_part_hides_no_default_of_another(part: str) -> None:
    arms = {"arm": {"why": "because", "set": {"model.halt.unit": "token"}}}
    for grid_spec in ({"arms": arms}, {"grid": {"model.halt.threshold": [0.5, 0.9]}}):
        with pytest.raises(PlanError) as caught:
            plan_quickly(make_spec(baseline=FAULTY[part], **grid_spec))
        assert [fault.path.split(".")[:2] for fault in caught.value.faults] == [["baseline", part]]
