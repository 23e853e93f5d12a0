"""Reported values are converted to numbers and attributes."""

import warnings

import numpy as np
import pytest
import torch

from orchestrator.execution.trial.worker_measurements import BadMeasurement, validate_measurement
from trainables.protocol import Measurement


@pytest.mark.parametrize(
    "value", [0.5, np.float32(0.5), torch.tensor(0.5), torch.tensor(0.5, requires_grad=True)]
)
def test_numbers_are_converted_without_a_warning(value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        validated = validate_measurement(Measurement(1, 1.0, {"loss": value}), None)
    assert validated.metrics == {"loss": 0.5}
    assert type(validated.metrics["loss"]) is float


def test_texts_are_attributes_and_none_is_omitted():
    validated = validate_measurement(
        Measurement(1, 1.0, {"loss": 0.5, "optimizer": "adamw", "lr": None}), None
    )
    assert (validated.metrics, validated.attributes) == ({"loss": 0.5}, {"optimizer": "adamw"})


def test_attributes_of_a_workload_are_retained():
    validated = validate_measurement(
        Measurement(1, 1.0, {"loss": 0.5}, attributes={"valid/digest": "0" * 32}), None
    )
    assert (validated.metrics, validated.attributes) == ({"loss": 0.5}, {"valid/digest": "0" * 32})


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 1e200])
def test_values_that_are_not_finite_are_retained(value):
    validated = validate_measurement(
        Measurement(1, 1.0, {"train/grad_norm": torch.tensor(value, dtype=torch.float64)}), None
    )
    assert repr(validated.metrics["train/grad_norm"]) == repr(value)


@pytest.mark.parametrize("value", [np.array([0.5]), torch.tensor([[0.5]])])
def test_arrays_with_one_element_are_numbers(value):
    assert validate_measurement(Measurement(1, 1.0, {"loss": value}), None).metrics == {"loss": 0.5}


@pytest.mark.parametrize(
    ("value", "message"), [(np.ones((2, 3)), r"\(2, 3\).*'valid/f1'"), (torch.ones(4), r"\(4,\).*'valid/f1'")]
)
def test_arrays_with_several_elements_are_refused_with_their_shape(value, message):
    with pytest.raises(BadMeasurement, match=message):
        validate_measurement(Measurement(1, 1.0, {"valid/f1": value}), None)
