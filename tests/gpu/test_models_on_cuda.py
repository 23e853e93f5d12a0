"""On CUDA every model computes the same as on the CPU, learns, and uses the estimated memory."""

import gc
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.gpu.devices import needs_cuda, on_devices
from tests.support.specs.box import all_arms, build_arm, single_change
from trainables import costs
from trainables.assembly import build_model, model_config
from trainables.data.synthetic import synthetic_batch
from trainables.layers.dropout import set_dropout_context
from trainables.testing import cases
from trainables.testing.arms import with_fields
from trainables.testing.cases import LENGTHS, SEED, SHAPE, batch, check_same
from trainables.training.config import train_config
from trainables.training.step import Learner, run_step
from trainables.types import Batch, Encoded, Output

UNIT = "universal, halt.unit=token"
CASES = all_arms("arm") | {UNIT: single_change(*UNIT.split(", "))}
EXACT = {"dropout": 0.2, "attention_dropout": 0.1, "attention": "math", "kernel": "math"}
"""Settings whose dropout masks are the same on every device, also in attention."""
WIDE = {"width": 128, "heads": 4, "feedforward_width": 256, "layers": 6, "test_layers": 6, "max_layers": 6}
GPU_MEMORY_FACTOR = 1.5
"""Greatest ratio of used to estimated memory of a step on CUDA: sums have temporary parts."""
WORKSPACES = 2 * (32 << 20)
"""Bytes of cuBLAS workspaces: 32 MiB on Hopper for each of the threads of forward pass and autograd."""


def move_batch(examples: Batch, device: str) -> Batch:
    return examples.to(torch.device(device))


def on_cpu(output: Output, gradients: dict[str, Tensor]) -> tuple[Tensor, Encoded, dict[str, Tensor]]:
    def to_cpu(tensor: Tensor | None) -> Any:
        return None if tensor is None else tensor.detach().cpu()

    encoded = Encoded(
        **{name: to_cpu(getattr(output.encoded, name)) for name in Encoded.__dataclass_fields__}
    )
    return output.loss.detach().cpu(), encoded, {name: grad.cpu() for name, grad in gradients.items()}


def run_pass(model: nn.Module, examples: Batch, device: str) -> tuple[Tensor, Encoded, dict[str, Tensor]]:
    return on_cpu(*cases.run_training_pass(model.to(device), move_batch(examples, device)))


@on_devices(CASES, rehearse=[UNIT, "crvnn, small"])
def test_training_pass_equals_that_of_the_cpu(case: dict[str, Any], device: str) -> None:
    settings, examples = with_fields(case, **EXACT), batch(LENGTHS)
    loss, encoded, gradients = run_pass(build_arm(settings), examples, "cpu")
    other_loss, other_encoded, other_gradients = run_pass(build_arm(settings), examples, device)
    torch.testing.assert_close(other_loss, loss)
    check_same(other_encoded, encoded, "on CUDA", without=("computed",))
    assert other_gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(other_gradients[name], gradient, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@on_devices(CASES, rehearse=["transformer, small"])
def test_training_steps_lower_the_loss(case: dict[str, Any], device: str, precision: str) -> None:
    if (device, precision) == ("cpu", "fp16"):
        return
    settings = train_config({"steps": 20, "lr": 3e-3, "precision": precision})
    learner = Learner(
        build_model(with_fields(case, dropout=0.0), SHAPE, SEED, device=device), settings, seed=SEED
    )
    examples = move_batch(synthetic_batch(SHAPE, n=8, length=9, seed=SEED), device)
    losses = [float(run_step(learner, examples, step).loss) for step in range(20)]
    assert all(loss < float("inf") for loss in losses)
    assert min(losses[-3:]) < losses[0]


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_memory_use_is_close_to_the_estimate(case: dict[str, Any]) -> None:
    settings = with_fields(case, **WIDE, attention_dropout=0.0)
    rows, length = 32, 100
    estimate = costs.peak_memory_bytes(model_config(settings), SHAPE, rows, length)
    gc.collect()
    bytes_before = torch.cuda.memory_allocated()  # memory of earlier tests
    learner = Learner(
        build_model(settings, SHAPE, SEED, device="cuda"), train_config({"steps": 2}), seed=SEED
    )
    examples = move_batch(synthetic_batch(SHAPE, n=rows, length=length, seed=SEED), "cuda")
    set_dropout_context(learner.model, SEED, 0)
    run_step(learner, examples, 0)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    run_step(learner, examples, 1)
    torch.cuda.synchronize()
    peak_memory_bytes = torch.cuda.max_memory_allocated() - bytes_before
    assert peak_memory_bytes < GPU_MEMORY_FACTOR * estimate + WORKSPACES
