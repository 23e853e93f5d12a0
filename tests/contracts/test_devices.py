"""Every model, head and way to decode keeps to one device, and waits for a GPU no oftener than it must.

On a pretended GPU, since this is what a machine without one would never show.
"""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.numerics.pretended_gpu import GPU, PretendedGpu, on_gpu, to_cpu
from tests.support.specs.box import all_arms, built, single_change
from trainables.assembly import build_model
from trainables.data.synthetic import synthetic_batch
from trainables.decoding.search import answers
from trainables.testing.arms import having
from trainables.testing.cases import LENGTHS, SEED, SHAPE, batch, check_same, trained
from trainables.testing.decoder import WRITTEN
from trainables.training.config import train_config
from trainables.training.evaluate import evaluate
from trainables.training.step import Learner, one_step
from trainables.types import Batch, Encoded, Output, TaskShape

ARMS, EXITS, WRITERS = all_arms("arm"), all_arms("exiting"), all_arms("writing")
EXACT = {"dropout": 0.2, "attention_dropout": 0.1, "attention": "math", "kernel": "math"}
"""Dropout in attention with masks that need no generator of the device."""
HEADS = {
    "classify": SHAPE,
    "pair": TaskShape("pair", 7, 5, pad_id=6, length_max=20, separator_id=5),
    "positions": TaskShape("positions", 7, 5, pad_id=6, length_max=20, causal=True),
    "sequence": WRITTEN,
}
TRAIN = {"steps": 2, "ema": 0.9, "clip": 1.0}


def moved(given: Batch) -> Batch:
    steps = None if given.steps is None else on_gpu(given.steps)
    return Batch(on_gpu(given.tokens), on_gpu(given.mask), on_gpu(given.labels), steps)


def returned(encoded: Encoded) -> Encoded:
    values = {name: getattr(encoded, name) for name in Encoded.__dataclass_fields__}
    return Encoded(**{name: None if value is None else to_cpu(value) for name, value in values.items()})


def passed(raw: dict[str, Any], given: Batch) -> tuple[Output, dict[str, Tensor], Counter[str]]:
    with PretendedGpu() as gpu:
        output, gradients = trained(on_gpu(built(raw)), moved(given))
        assert output.loss.device == GPU
        assert {gradient.device for gradient in gradients.values()} == {GPU}
    return output, gradients, gpu.waits


@pytest.mark.parametrize("raw", ARMS.values(), ids=ARMS)
def test_a_training_pass_keeps_to_its_device(raw: dict[str, Any]) -> None:
    raw, given = having(raw, **EXACT), batch(LENGTHS)
    expected, gradients = trained(built(raw), given)
    found, other_gradients, _ = passed(raw, given)
    torch.testing.assert_close(to_cpu(found.loss), expected.loss.detach())
    # How work is saved, and so how much is run, may depend on the device.
    check_same(returned(found.encoded), returned(expected.encoded), "on a GPU", without=("computed",))
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
def test_other_ways_to_save_work_keep_to_it(raw: dict[str, Any], early_exit: str) -> None:
    raw, given = having(raw, **EXACT, early_exit=early_exit), batch(LENGTHS)
    expected, _ = trained(built(raw), given)
    torch.testing.assert_close(to_cpu(passed(raw, given)[0].loss), expected.loss.detach())


@pytest.mark.parametrize("head", HEADS)
def test_training_and_measuring_keep_to_their_device(head: str) -> None:
    """A step of training with clipping and a moving average, then a validation, of every kind of head."""
    shape = HEADS[head]
    raw = having(ARMS["transformer, small"], **EXACT, causal=shape.causal)
    given = synthetic_batch(shape, n=3, length=9, seed=SEED)
    expected = measured(Learner(build_model(raw, shape, SEED), train_config(TRAIN), seed=SEED), given)
    with PretendedGpu():
        learner = Learner(on_gpu(build_model(raw, shape, SEED)), train_config(TRAIN), seed=SEED)
        assert learner.device == GPU
        found = measured(learner, moved(given))
    assert found == pytest.approx(expected, rel=1e-5)


def measured(learner: Learner, given: Batch) -> dict[str, float]:
    step = one_step(learner, given, 0)
    return {"training_loss": float(step.loss), "norm": float(step.gradient_norm)} | evaluate(learner, [given])


@pytest.mark.parametrize(
    ("raw", "beam"),
    [pytest.param(raw, 1 + number % 2, id=label) for number, (label, raw) in enumerate(WRITERS.items())],
)
def test_writing_keeps_to_its_device(raw: dict[str, Any], beam: int) -> None:
    given = synthetic_batch(WRITTEN, n=3, length=6, seed=SEED)
    model = built(raw, WRITTEN).eval()
    config = train_config({"steps": 1, "beam_size": beam, "decode_length_max": 5})
    expected = answers(model, given, config)
    with PretendedGpu(), torch.inference_mode():
        assert answers(on_gpu(model), moved(given), config) == expected


DEEP = ("universal", "universal, halt.unit=token", "gutlb")


@pytest.mark.parametrize("which", DEEP)
def test_nothing_waits_layer_by_layer_where_no_work_is_saved(which: str) -> None:
    """Each wait is a gap in the work of a GPU."""
    name, _, label = which.partition(", ")
    given, raw = batch(LENGTHS), single_change(name, label)

    def waits(layers: int) -> Counter[str]:
        return +passed(having(raw, **EXACT, early_exit="none", max_layers=layers), given)[2]

    assert waits(3) == waits(9)
