"""Recomputed layers give the same gradients and store few activations."""

from typing import Any

import pytest
import torch

from tests.support.numerics.tensor_memory import TensorMemory
from tests.support.specs.box import single_change
from tests.trainables.training.support.fakes import BagOfWords
from tests.trainables.training.support.steps import (
    ROWS,
    SHAPES,
    assert_same_step,
    cases,
    learner,
    small_settings,
    take_step,
)
from trainables import costs
from trainables.assembly import model_config
from trainables.data.synthetic import synthetic_batch
from trainables.layers.dropout import set_dropout_context
from trainables.testing.arms import with_fields
from trainables.training.config import train_config
from trainables.training.step import Learner, objective

RECOMPUTED = {"checkpoint_activations": True}
TOKENS, NUM_BOUNDARIES = 18, 2
"""Tokens of each row, and START and END of each row."""
WIDE_SETTINGS = {"width": 32, "dropout": 0.1, "attention_dropout": 0.1}
DEEP_ARMS = {
    "universal": ("max_layers", {"early_exit": "none"}, 1.1),
    "sut": ("max_layers", {"early_exit": "none"}, 4.5),
    "transformer": ("layers", {}, 1.1),
}
"""By model and arm: field with the number of layers, further settings, and most stored states of a layer."""


@pytest.mark.parametrize(("name", "head"), cases())
def test_recomputed_layers_have_the_same_gradients(name: str, head: str) -> None:
    shape = SHAPES[head]
    raw = small_settings(name, shape)
    batch = synthetic_batch(shape, ROWS, 9, seed=1)
    assert_same_step(
        take_step(learner(raw, shape, **RECOMPUTED), batch), take_step(learner(raw, shape), batch)
    )


def stored_bytes(raw: dict[str, Any], *, is_recomputed: bool) -> int:
    """Return the bytes of all tensors that are alive after a forward pass."""
    shape = SHAPES["classify"]
    recomputing_learner = learner(raw, shape, checkpoint_activations=is_recomputed)
    batch = synthetic_batch(shape, 4, TOKENS, seed=1)
    set_dropout_context(recomputing_learner.model, 0, 0)
    with TensorMemory() as memory:
        total = objective(recomputing_learner.model(batch), recomputing_learner.config)
    assert total.requires_grad
    return memory.now


@pytest.mark.parametrize("case", DEEP_ARMS)
def test_recomputed_layer_stores_only_its_states(case: str) -> None:
    name, _, label = case.partition(", ")
    field, settings, max_states = DEEP_ARMS[case]
    raw = with_fields(single_change(name, label), **WIDE_SETTINGS, **settings)
    state = 4 * (TOKENS + NUM_BOUNDARIES) * WIDE_SETTINGS["width"] * torch.float64.itemsize

    def growth(*, is_recomputed: bool) -> float:
        few_layers_bytes, many_layers_bytes = (
            stored_bytes(with_fields(raw, **{field: layers}), is_recomputed=is_recomputed)
            for layers in (3, 6)
        )
        return (many_layers_bytes - few_layers_bytes) / 3 / state

    assert growth(is_recomputed=True) < min(max_states, growth(is_recomputed=False) / 3)


@pytest.mark.parametrize("case", DEEP_ARMS)
def test_memory_estimate_covers_one_layer_and_all_states(case: str) -> None:
    name, _, label = case.partition(", ")
    field, settings, _ = DEEP_ARMS[case]
    shape = SHAPES["classify"]
    config = model_config(with_fields(single_change(name, label), **WIDE_SETTINGS, **settings, **{field: 12}))
    rows = (64, TOKENS, 0)
    without_recomputation = costs.peak_memory_bytes(config, shape, *rows)
    planned = costs.peak_memory_bytes(config, shape, *rows, recomputes=True)
    stored = (
        stored_bytes(config.model_dump(mode="json"), is_recomputed=True) * 64 / 4 / 2
    )  # measured with 4 rows in 64 bits
    one_layer = without_recomputation / 12
    assert 0.5 * stored < planned < 2 * (stored + one_layer)
    assert planned < without_recomputation / 2


def test_model_without_recomputable_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="checkpoint_activations"):
        Learner(BagOfWords(), train_config({"steps": 1, **RECOMPUTED}), seed=0)
