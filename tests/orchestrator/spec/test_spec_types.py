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
    ("kind", "values", "field"),
    [
        (ArmSpec, {"why": "x", "set": {"model.a": math.nan}}, "set"),
        (ArmSpec, {"why": "x", "set": {"model.a": {1, 2}}}, "set"),
        (Confirm, {"seeds": (1, True)}, "seeds"),
        (Confirm, {"seeds": (1,), "best": 10**12}, "best"),
        (Resources, {"gpus": 2048.0}, "gpus"),
    ],
)
def test_invalid_value_is_refused_at_its_field(kind: type[Any], values: dict[str, Any], field: str) -> None:
    assert faulty_fields(kind, values) == {field}


def faulty_fields(kind: type[Any], values: dict[str, Any]) -> set[Any]:
    """Return the top-level fields of the faults."""
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(values)
    return {error["loc"][0] for error in caught.value.errors()}


def test_ranges_may_be_dimensions() -> None:
    width = Dimension("model.width", Choice((64, 128)))
    search = Search(trials_per_arm=1, objectives=OBJECTIVES, also=(width,))
    assert search.also == (width,)
    assert search.model_dump(mode="json")["also"] == {"model.width": {"choice": [64, 128]}}


CONTENT = {
    "name": "x",
    "question": "Why?",
    "baseline": {"task": {"name": "listops"}, "model": {"name": "universal"}},
    "confirm": {"seeds": [1]},
}


def test_repeated_values_are_compared_by_value_and_type():
    different = [1, True, "1", None, [1], [True], {"a": 1}, {"a": 2}]
    assert Spec.model_validate(CONTENT | {"grid": {"model.halt": different}}).grid
    for repeated in ([1, 1.0], [True, True], [{"a": 1, "b": 2}, {"b": 2, "a": 1}], [[1], [1]]):
        assert faulty_fields(Spec, CONTENT | {"grid": {"model.halt": repeated}}) == {"grid"}
