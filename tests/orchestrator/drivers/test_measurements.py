"""What a trial reports is a number, whatever holds it."""

import warnings

import numpy as np
import pytest
import torch

from orchestrator.drivers.worker_measurements import sound
from trainables.protocol import Measurement


@pytest.mark.parametrize(
    "value", [0.5, np.float32(0.5), torch.tensor(0.5), torch.tensor(0.5, requires_grad=True)]
)
def test_numbers_are_read_without_a_warning(value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sound(Measurement(1, 1.0, {"loss": value}), None)
    assert found.metrics == {"loss": 0.5}
    assert type(found.metrics["loss"]) is float
