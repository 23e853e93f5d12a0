"""Names and texts that MLflow takes, whatever they are made of."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.tracking.desired_runs import as_params, metric_key


@given(st.text(st.characters(), min_size=1))
@example("a//b")
@example("../x")
@example("/")
@example("x" * 300)
def test_any_name_becomes_one_that_mlflow_takes(name: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    assert _validate_metric_name(metric_key(name)) is None, "MLflow raises for others"
    assert metric_key(name)


def test_long_names_stay_apart() -> None:
    assert metric_key("x" * 300) != metric_key("x" * 301)


@pytest.mark.parametrize("name", ["valid/accuracy", "near-iid/depth_p10", "time/seconds"])
def test_common_names_are_left_alone(name: str) -> None:
    assert metric_key(name) == name


def test_texts_are_shown_as_they_stand() -> None:
    assert as_params({"train.note": "\x1b[2J<b>"}) == {"train.note": r"\x1b[2J<b>"}
