"""A spec created in Python follows the rules of a spec file."""

import math
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.spec.section import Resources
from orchestrator.spec.types import ArmSpec, Confirm, Search, Spec
from search_spaces.dimensions import Choice, Dimension

OBJECTIVES = [{"metric": "valid/accuracy", "goal": "max"}]


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (
            ArmSpec,
            {"why": "x", "set": {"model.a": math.nan}},
            "must be finite numbers, texts, true, false, null, lists and mappings",
        ),
        (ArmSpec, {"why": "x", "set": {"model.a": {1, 2}}}, "must be finite numbers, texts"),
        (ArmSpec, {"why": " ", "set": {"model.a": 1}}, "must be a text that is not empty, got the text ' '"),
        (Confirm, {"seeds": (1, True)}, "must be an integer from 0 to 2147483647, got true"),
        (Confirm, {"seeds": (1,), "best": 10**12}, "must be at most 1,000,000,000, got 1000000000000"),
        (
            Search,
            {"trials_per_arm": 10**12, "objectives": OBJECTIVES},
            "must be at most 1,000,000,000, got 1000000000000",
        ),
        (Resources, {"retries": 10**9 + 1}, "must be at most 1,000,000,000, got 1000000001"),
        (Resources, {"gpus": 2048.0}, "must be at most 1,024, got 2048.0"),
        (
            Search,
            {"trials_per_arm": 1, "objectives": OBJECTIVES, "also": {"model.a": 1}},
            r"must be a range like {float: \[1.0e-4, 1.0e-2\], log: true}, got 1",
        ),
    ],
)
def test_invalid_value_is_refused(kind: type[Any], values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        kind(**values)


def test_ranges_may_be_dimensions() -> None:
    width = Dimension("model.width", Choice((64, 128)))
    search = Search(trials_per_arm=1, objectives=OBJECTIVES, also=(width,))
    assert search.also == (width,)
    assert search.model_dump(mode="json")["also"] == {"model.width": {"choice": [64, 128]}}


def test_content_omits_absent_sections() -> None:
    baseline = {"task": {"name": "listops"}, "model": {"name": "universal"}}
    spec = Spec(name="a", question="b", baseline=baseline, confirm={"seeds": [1]})
    assert list(spec.content()) == ["name", "question", "baseline", "confirm", "resources"]


def test_name_of_a_model_must_be_a_text():
    with pytest.raises(ValidationError, match="must have a text as its name, got 3"):
        Spec.model_validate(
            {
                "name": "x",
                "question": "Why?",
                "baseline": {"task": {"name": "listops"}, "model": {"name": 3}},
                "confirm": {"seeds": [1]},
            }
        )


def test_repeated_values_are_compared_by_value_and_type():
    def make_grid_spec(values):
        return Spec.model_validate(
            {
                "name": "x",
                "question": "Why?",
                "baseline": {"task": {"name": "listops"}, "model": {"name": "universal"}},
                "confirm": {"seeds": [1]},
                "grid": {"model.halt": values},
            }
        )

    assert make_grid_spec([1, True, "1", None, [1], [True], {"a": 1}, {"a": 2}]).grid
    for repeated_values in ([1, 1.0], [True, True], [{"a": 1, "b": 2}, {"b": 2, "a": 1}], [[1], [1]]):
        with pytest.raises(ValidationError, match="must not repeat itself"):
            make_grid_spec(repeated_values)
