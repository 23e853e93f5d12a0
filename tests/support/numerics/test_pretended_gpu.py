"""The pretended GPU refuses what a real GPU refuses, and counts what is slow on one."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.support.numerics.pretended_gpu import CPU, GPU, OnGpu, PretendedGpu, on_gpu, to_cpu
from trainables.layers.plain import global_stream


def test_operation_refuses_tensors_of_two_devices() -> None:
    x = on_gpu(torch.ones(3))
    with PretendedGpu(), pytest.raises(RuntimeError, match=r"\[\(3,\)\]"):
        x + torch.ones(3)


def test_cpu_scalar_works_with_gpu_tensors() -> None:
    with PretendedGpu():
        assert (on_gpu(torch.ones(3)) * torch.tensor(2.0)).device == GPU


def test_new_tensors_are_on_the_requested_device() -> None:
    x = on_gpu(torch.ones(3))
    with PretendedGpu():
        assert torch.arange(3, device=x.device).is_cuda
        assert torch.zeros_like(x).device == GPU
        assert not torch.arange(3).is_cuda
        assert x.cpu().device == x.to("cpu").device == CPU
        assert torch.ones(2).to(x.device).device == GPU


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


def test_gradients_are_on_the_device_of_parameters() -> None:
    model, x = on_gpu(nn.Linear(2, 1)), on_gpu(torch.ones(1, 2))
    with PretendedGpu():
        model(x).sum().backward()
        assert model.weight.grad is not None
        assert model.weight.grad.device == GPU
    assert isinstance(model.weight, OnGpu)
    assert torch.equal(to_cpu(model.weight.grad), torch.ones(1, 2))


def test_generator_is_seeded_and_restored() -> None:
    """Plain modules draw the same numbers as on the CPU, and the global generator is restored."""
    x, random_state = torch.ones(20), torch.get_rng_state()
    with global_stream(7):
        expected = nn.functional.dropout(x)
    with PretendedGpu(), global_stream(7, GPU):
        result = nn.functional.dropout(on_gpu(x))
    assert torch.equal(to_cpu(result), expected)
    assert torch.equal(torch.get_rng_state(), random_state)


def test_packed_sequences_have_lengths_on_the_cpu() -> None:
    gru, x, lengths = nn.GRU(2, 2, batch_first=True), torch.rand(2, 3, 2), torch.tensor([1, 3])

    def states(x: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        padded, unpacked_lengths = pad_packed_sequence(gru(packed)[0], batch_first=True)
        assert unpacked_lengths.device == CPU
        return padded

    expected = states(x)
    gru = on_gpu(gru)
    with PretendedGpu():
        result = states(on_gpu(x))
        assert result.device == GPU
    assert torch.equal(to_cpu(result), expected)
