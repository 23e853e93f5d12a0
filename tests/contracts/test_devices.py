"""Models, heads and decoding keep all tensors on one device, and do not make the host wait unnecessarily.

A pretended GPU finds such faults on a machine without a GPU.
"""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.numerics.pretended_gpu import GPU, PretendedGpu, on_gpu, to_cpu
from tests.support.specs.box import all_arms, build_arm, single_change
from trainables.assembly import build_model
from trainables.data.synthetic import synthetic_batch
from trainables.decoding.search import answers
from trainables.testing.arms import with_fields
from trainables.testing.cases import LENGTHS, SEED, SHAPE, batch, check_same, run_training_pass
from trainables.testing.decoder import ANSWER_SHAPE
from trainables.training.config import train_config
from trainables.training.evaluate import evaluate
from trainables.training.step import Learner, run_step
from trainables.types import Batch, Encoded, Output, TaskShape

ARMS, EXITS, WRITERS = all_arms("arm"), all_arms("exiting"), all_arms("writing")
EXACT = {"dropout": 0.2, "attention_dropout": 0.1, "attention": "math", "kernel": "math"}
"""Settings with attention dropout whose masks need no generator of the device."""
HEADS = {
    "classify": SHAPE,
    "pair": TaskShape("pair", 7, 5, pad_id=6, length_max=20, separator_id=5),
    "positions": TaskShape("positions", 7, 5, pad_id=6, length_max=20, causal=True),
    "sequence": ANSWER_SHAPE,
}
TRAIN = {"steps": 2, "ema": 0.9, "clip": 1.0}


def to_pretended_gpu(batch_: Batch) -> Batch:
    steps = None if batch_.steps is None else on_gpu(batch_.steps)
    return Batch(on_gpu(batch_.tokens), on_gpu(batch_.mask), on_gpu(batch_.labels), steps)


def to_host(encoded: Encoded) -> Encoded:
    values = {name: getattr(encoded, name) for name in Encoded.__dataclass_fields__}
    return Encoded(**{name: None if value is None else to_cpu(value) for name, value in values.items()})


def run_pass(raw: dict[str, Any], batch_: Batch) -> tuple[Output, dict[str, Tensor], Counter[str]]:
    with PretendedGpu() as gpu:
        output, gradients = run_training_pass(on_gpu(build_arm(raw)), to_pretended_gpu(batch_))
        assert output.loss.device == GPU
        assert {gradient.device for gradient in gradients.values()} == {GPU}
    return output, gradients, gpu.waits


@pytest.mark.parametrize("raw", ARMS.values(), ids=ARMS)
def test_training_pass_keeps_tensors_on_the_device(raw: dict[str, Any]) -> None:
    raw, batch_ = with_fields(raw, **EXACT), batch(LENGTHS)
    expected, gradients = run_training_pass(build_arm(raw), batch_)
    actual, other_gradients, _ = run_pass(raw, batch_)
    torch.testing.assert_close(to_cpu(actual.loss), expected.loss.detach())
    # The way to save work, and so the number of computed layers, may depend on the device.
    check_same(to_host(actual.encoded), to_host(expected.encoded), "on a GPU", without=("computed",))
    assert gradients.keys() == other_gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(to_cpu(other_gradients[name]), gradient)


@pytest.mark.parametrize(
    ("raw", "early_exit"),
    [
        pytest.param(raw, ("none", "batch")[number % 2], id=label)
        for number, (label, raw) in enumerate(EXITS.items())
    ],
)
def test_early_exit_modes_keep_tensors_on_the_device(raw: dict[str, Any], early_exit: str) -> None:
    raw, batch_ = with_fields(raw, **EXACT, early_exit=early_exit), batch(LENGTHS)
    expected, _ = run_training_pass(build_arm(raw), batch_)
    torch.testing.assert_close(to_cpu(run_pass(raw, batch_)[0].loss), expected.loss.detach())


@pytest.mark.parametrize("head", HEADS)
def test_training_and_evaluation_keep_tensors_on_the_device(head: str) -> None:
    """Every head runs a training step with clipping and a moving average, and a validation."""
    shape = HEADS[head]
    raw = with_fields(ARMS["transformer, small"], **EXACT, causal=shape.causal)
    batch_ = synthetic_batch(shape, n=3, length=9, seed=SEED)
    expected = evaluate_on_gpu(Learner(build_model(raw, shape, SEED), train_config(TRAIN), seed=SEED), batch_)
    with PretendedGpu():
        learner = Learner(on_gpu(build_model(raw, shape, SEED)), train_config(TRAIN), seed=SEED)
        assert learner.device == GPU
        gpu_metrics = evaluate_on_gpu(learner, to_pretended_gpu(batch_))
    assert gpu_metrics == pytest.approx(expected, rel=1e-5)


def evaluate_on_gpu(learner: Learner, batch_: Batch) -> dict[str, float]:
    step = run_step(learner, batch_, 0)
    return {"training_loss": float(step.loss), "norm": float(step.gradient_norm)} | evaluate(
        learner, [batch_]
    )


@pytest.mark.parametrize(
    ("raw", "beam"),
    [pytest.param(raw, 1 + number % 2, id=label) for number, (label, raw) in enumerate(WRITERS.items())],
)
def test_decoding_keeps_tensors_on_the_device(raw: dict[str, Any], beam: int) -> None:
    batch_ = synthetic_batch(ANSWER_SHAPE, n=3, length=6, seed=SEED)
    model = build_arm(raw, ANSWER_SHAPE).eval()
    config = train_config({"steps": 1, "beam_size": beam, "decode_length_max": 5})
    expected = answers(model, batch_, config)
    with PretendedGpu(), torch.inference_mode():
        assert answers(on_gpu(model), to_pretended_gpu(batch_), config) == expected


DEEP = ("universal", "universal, halt.unit=token", "gutlb")


@pytest.mark.parametrize("case", DEEP)
def test_layers_without_early_exit_add_no_host_waits(case: str) -> None:
    """Each wait is a gap in the work of a GPU."""
    name, _, label = case.partition(", ")
    batch_, raw = batch(LENGTHS), single_change(name, label)

    def waits(layers: int) -> Counter[str]:
        return +run_pass(with_fields(raw, **EXACT, early_exit="none", max_layers=layers), batch_)[2]

    assert waits(3) == waits(9)
