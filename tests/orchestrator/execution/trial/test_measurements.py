"""Reported values are converted to numbers and attributes."""

import warnings

import numpy as np
import pytest
import torch

from orchestrator.execution.trial.worker_measurements import BadMeasurement, validate_measurement
from trainables.protocol import Measurement


@pytest.mark.parametrize("value", [np.array([0.5]), torch.tensor(0.5, requires_grad=True)])
def test_numbers_are_converted_without_a_warning(value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        validated = validate_measurement(Measurement(1, 1.0, {"loss": value}), None)
    assert validated.metrics == {"loss": 0.5}
    assert type(validated.metrics["loss"]) is float


def test_texts_are_attributes_and_none_is_omitted():
    validated = validate_measurement(
        Measurement(1, 1.0, {"loss": 0.5, "optimizer": "adamw", "lr": None}, attributes={"digest": "0"}), None
    )
    assert validated.metrics == {"loss": 0.5}
    assert validated.attributes == {"optimizer": "adamw", "digest": "0"}


@pytest.mark.parametrize("value", [float("nan"), 1e200])
def test_values_that_are_not_finite_are_retained(value):
    validated = validate_measurement(
        Measurement(1, 1.0, {"train/grad_norm": torch.tensor(value, dtype=torch.float64)}), None
    )
    assert repr(validated.metrics["train/grad_norm"]) == repr(value)


def test_arrays_with_several_elements_and_invalid_seconds_are_refused():
    with pytest.raises(BadMeasurement, match=r"\(2, 3\).*'valid/f1'"):
        validate_measurement(Measurement(1, 1.0, {"valid/f1": np.ones((2, 3))}), None)
    with pytest.raises(BadMeasurement):
        validate_measurement(Measurement(1, float("nan"), {}), None)
