"""The pretended GPU refuses what a real GPU refuses, and counts what is slow on one."""

import pytest
import torch

from tests.support.numerics.pretended_gpu import PretendedGpu, on_gpu


def test_operation_refuses_tensors_of_two_devices() -> None:
    x = on_gpu(torch.ones(3))
    with PretendedGpu(), pytest.raises(RuntimeError, match=r"\[\(3,\)\]"):
        x + torch.ones(3)


def test_synchronising_operations_are_counted() -> None:
    x = on_gpu(torch.tensor([0.0, 2.0]))
    with PretendedGpu() as gpu:
        x.relu().sum()
        torch.repeat_interleave(x, (x > 0).long(), output_size=1)
        torch.repeat_interleave(x, 3)
        assert not +gpu.waits
        float(x.sum())
        x[x > 0]
        x.nonzero()
        torch.repeat_interleave(x, (x > 0).long())
    assert +gpu.waits == {"__float__": 1, "__getitem__": 1, "nonzero": 1, "repeat_interleave": 1}
