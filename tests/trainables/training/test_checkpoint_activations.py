"""Layers that are run again in the backward pass teach what they teach without, and keep little."""

from typing import Any

import pytest
import torch

from tests.support.numerics.tensor_memory import TensorMemory
from tests.support.specs.box import MODELS, single_change
from tests.trainables.training.support.fakes import Bag
from tests.trainables.training.support.steps import (
    DROPPED,
    ROWS,
    SHAPES,
    cases,
    check_same,
    learner,
    round_up_width,
    small,
)
from trainables import costs
from trainables.assembly import model_config
from trainables.data.synthetic import synthetic_batch
from trainables.layers.dropout import set_dropout_context
from trainables.testing.arms import having
from trainables.testing.exits import modes_of
from trainables.training.config import train_config
from trainables.training.step import Learner, objective

UNIT = "halt.unit=token"
AGAIN = {"checkpoint_activations": True}
TOKENS, ROOM = 18, 2
"""Of each row, and START and END beside them."""
WIDE = {"width": 32, "dropout": 0.1, "attention_dropout": 0.1}
FLAT = {
    "universal": ("max_layers", {"early_exit": "none"}, 1.1),
    "universal, halt=None": ("max_layers", {}, 1.1),
    "universal, halt.unit=token": ("max_layers", {"early_exit": "none"}, 6.0),
    "sut": ("max_layers", {"early_exit": "none"}, 4.5),
    "sut, halt=None": ("max_layers", {}, 2.0),
    "ndr": ("layers", {}, 1.1),
    "transformer": ("layers", {}, 1.1),
}
"""By model and arm: what bounds its layers, and at most how many states of a position a layer keeps."""


@pytest.mark.parametrize(("name", "head"), cases())
def test_layers_that_are_run_again_teach_the_same(name: str, head: str) -> None:
    shape = SHAPES[head]
    raw = small(name, shape)
    batch = synthetic_batch(shape, ROWS, 9, seed=1)
    check_same(
        round_up_width(learner(raw, shape, **AGAIN), batch), round_up_width(learner(raw, shape), batch)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name]().every_exiting()])
def test_early_exit_is_as_without(name: str) -> None:
    shape = SHAPES["classify"]
    batch = synthetic_batch(shape, ROWS, 9, seed=1)
    plain = single_change(name, "")
    for raw in (plain, single_change(name, UNIT)) if "unit" in (plain.get("halt") or {}) else (plain,):
        for mode in modes_of(model_config(raw)):
            exiting = having(raw, **DROPPED, early_exit=mode)
            check_same(
                round_up_width(learner(exiting, shape, **AGAIN), batch),
                round_up_width(learner(exiting, shape), batch),
            )


def kept_bytes(raw: dict[str, Any], *, again: bool) -> int:
    """Of all tensors that live on after a forward pass."""
    shape = SHAPES["classify"]
    built = learner(raw, shape, checkpoint_activations=again)
    batch = synthetic_batch(shape, 4, TOKENS, seed=1)
    set_dropout_context(built.model, 0, 0)
    with TensorMemory() as memory:
        total = objective(built.model(batch), built.config)
    assert total.requires_grad
    return memory.now


@pytest.mark.parametrize("which", FLAT)
def test_a_layer_more_keeps_its_states_alone(which: str) -> None:
    name, _, label = which.partition(", ")
    field, more, most = FLAT[which]
    raw = having(single_change(name, label), **WIDE, **more)
    state = 4 * (TOKENS + ROOM) * WIDE["width"] * torch.float64.itemsize

    def growth(*, again: bool) -> float:
        few, many = (kept_bytes(having(raw, **{field: layers}), again=again) for layers in (3, 6))
        return (many - few) / 3 / state

    assert growth(again=True) < min(most, growth(again=False) / 3)


@pytest.mark.parametrize("which", FLAT)
def test_memory_is_planned_for_one_layer_and_the_states_between(which: str) -> None:
    name, _, label = which.partition(", ")
    field, more, _ = FLAT[which]
    shape = SHAPES["classify"]
    config = model_config(having(single_change(name, label), **WIDE, **more, **{field: 12}))
    rows = (64, TOKENS, 0)
    whole = costs.peak_memory_bytes(config, shape, *rows)
    planned = costs.peak_memory_bytes(config, shape, *rows, recomputes=True)
    kept = kept_bytes(config.model_dump(mode="json"), again=True) * 64 / 4 / 2  # of 4 rows, in 64 bits
    one_layer = whole / 12
    assert 0.5 * kept < planned < 2 * (kept + one_layer)
    assert planned < whole / 2


def test_a_model_without_layers_to_run_again_is_refused() -> None:
    shown = (
        "checkpoint_activations must be false for a model without layers that can be run again .*: drop it"
    )
    with pytest.raises(ValueError, match=shown):
        Learner(Bag(), train_config({"steps": 1, **AGAIN}), seed=0)
