"""Training steps of every model with every head, with dropout and all costs, compared between two ways."""

from typing import Any

import torch

from tests.support.specs.box import MODELS
from trainables.assembly import build_model, misfit, model_config
from trainables.testing.arms import with_fields
from trainables.testing.cases import enliven
from trainables.training.config import train_config
from trainables.training.step import Learner, StepResult, run_step
from trainables.types import Batch, TaskShape

SHAPES = {
    "classify": TaskShape("classify", 7, 5, 6, 20),
    "pair": TaskShape("pair", 9, 3, 8, 20, separator_id=7),
    "positions": TaskShape("positions", 7, 3, 6, 20, causal=True, steps_max=9),
    "sequence": TaskShape("sequence", 7, 9, 6, 20, end_id=8, answer_length_max=9),
}
DROPOUT_RATES = {"dropout": 0.2, "attention_dropout": 0.1, "readout_dropout": 0.2, "cell_dropout": 0.2}
ROWS = 7
"""Number of rows that no tested number of parts divides."""


def small_settings(name: str, shape: TaskShape, **changes: Any) -> dict[str, Any]:
    raw = with_fields(MODELS[name]().every_arm()["small"], **DROPOUT_RATES, **changes)
    return with_fields(raw, causal=True) if shape.causal else raw


def cases() -> list[tuple[str, str]]:
    """Return the pairs of model and head that fit."""
    return [
        (name, head)
        for name in MODELS
        for head, shape in SHAPES.items()
        if misfit(model_config(small_settings(name, shape)), shape) is None
    ]


def learner(raw: dict[str, Any], shape: TaskShape, **train: Any) -> Learner:
    model = build_model(raw, shape, seed=3).double()
    enliven(model, 8.0, 0.5)
    settings = {"steps": 9, "clip": None, "label_smoothing": 0.1, "auxiliary_weight": 0.3}
    return Learner(model, train_config(settings | train), seed=5)


def take_step(learner: Learner, batch: Batch) -> tuple[StepResult, dict[str, torch.Tensor]]:
    """Return the result of one optimiser step and the gradients by name."""
    result = run_step(learner, batch, 4)
    return result, {name: p.grad for name, p in learner.model.named_parameters() if p.grad is not None}


def assert_same_step(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual[0].row(), expected[0].row(), rtol=1e-9, atol=1e-12)
    assert actual[1].keys() == expected[1].keys()
    for name, gradient in actual[1].items():
        torch.testing.assert_close(gradient, expected[1][name], rtol=1e-7, atol=1e-10, msg=name)
