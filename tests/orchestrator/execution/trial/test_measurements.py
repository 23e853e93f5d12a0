"""What a trial reports is a number, whatever holds it."""

import warnings

import numpy as np
import pytest
import torch

from orchestrator.execution.trial.worker_measurements import BadMeasurement, validate_measurement
from trainables.protocol import Measurement


@pytest.mark.parametrize(
    "value", [0.5, np.float32(0.5), torch.tensor(0.5), torch.tensor(0.5, requires_grad=True)]
)
def test_numbers_are_read_without_a_warning(value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = validate_measurement(Measurement(1, 1.0, {"loss": value}), None)
    assert found.metrics == {"loss": 0.5}
    assert type(found.metrics["loss"]) is float


def test_texts_are_attributes_and_what_is_none_is_left_out():
    found = validate_measurement(Measurement(1, 1.0, {"loss": 0.5, "optimizer": "adamw", "lr": None}), None)
    assert (found.metrics, found.attributes) == ({"loss": 0.5}, {"optimizer": "adamw"})


def test_texts_that_a_workload_gives_apart_are_attributes_too():
    found = validate_measurement(
        Measurement(1, 1.0, {"loss": 0.5}, attributes={"valid/digest": "0" * 32}), None
    )
    assert (found.metrics, found.attributes) == ({"loss": 0.5}, {"valid/digest": "0" * 32})


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 1e200])
def test_what_is_not_finite_is_passed_on(value):
    found = validate_measurement(
        Measurement(1, 1.0, {"train/grad_norm": torch.tensor(value, dtype=torch.float64)}), None
    )
    assert repr(found.metrics["train/grad_norm"]) == repr(value)


@pytest.mark.parametrize("value", [np.array([0.5]), torch.tensor([[0.5]])])
def test_one_element_is_a_number(value):
    assert validate_measurement(Measurement(1, 1.0, {"loss": value}), None).metrics == {"loss": 0.5}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (np.ones((2, 3)), r"of shape \(2, 3\) for 'valid/f1'"),
        (torch.ones(4), r"of shape \(4,\) for 'valid/f1'"),
    ],
)
def test_several_numbers_are_refused_with_their_shape(value, told):
    with pytest.raises(BadMeasurement, match=told):
        validate_measurement(Measurement(1, 1.0, {"valid/f1": value}), None)
