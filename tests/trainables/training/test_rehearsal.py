"""Every setting of training has an effect: another value changes what is learned, measured or written."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.trainables.training.support.rehearsal import SEQUENCE_TASK, TASK, TRAIN, measure_training
from trainables.decoding.decode_config import DecodeConfig
from trainables.field_effects import Affects
from trainables.training.config import TrainConfig

FIELD_VALUES: Mapping[str, tuple[Any, Any, Mapping[str, Any]]] = {
    "steps": (4, 5, {}),
    "batch_size": (4, 6, {}),
    "batch_tokens": (40, 80, {"order": "bucketed"}),
    "order": ("random", "bucketed", {}),
    "optimizer": ("adamw", "ranger", {}),
    "lr": (0.05, 0.02, {}),
    "schedule": ("constant", "cosine", {}),
    "halve_after": (None, 0, {}),
    "warmup_steps": (0, 4, {"schedule": "warmup"}),
    "hold_steps": (0, 3, {"schedule": "cosine"}),
    "onecycle_beta1": (False, True, {"schedule": "linear"}),
    "betas": ((0.9, 0.98), (0.5, 0.9), {}),
    "eps": (1e-8, 1e-2, {}),
    "weight_decay": (0.0, 0.5, {}),
    "clip": (None, 0.05, {}),
    "label_smoothing": (0.0, 0.5, {}),
    "ema": (None, 0.5, {}),
    "report_every": (1, 2, {}),
    "select": ("best", "last", {}),
    "select_by": ("accuracy", "loss", {}),
    "average_best": (1, 2, {}),
    "patience": (None, 0, {}),
    "valid_examples": (None, 5, {}),
    "precision": ("fp32", "bf16", {}),
    "beam_size": (1, 4, {}),
    "length_penalty": (0.0, 3.0, {"beam_size": 4}),
    "decode_length_max": (2, 4, {}),
    "decode_examples": (2, 8, {}),
}
"""By field: two values, and other fields without which the field has no effect."""
COST_FIELDS = frozenset({"ponder_weight", "auxiliary_weight", "accumulate"})
"""Fields with an effect only in models with additional costs; tests of those models vary them."""


def test_every_field_with_an_effect_has_values() -> None:
    running = {
        name
        for name, field in TrainConfig.model_fields.items()
        if any(isinstance(mark, Affects) and mark.stage == "running" for mark in field.metadata)
    }
    assert FIELD_VALUES.keys() == TrainConfig.model_fields.keys() - running - COST_FIELDS


@pytest.mark.parametrize("field", FIELD_VALUES)
def test_another_value_changes_the_measurements(field: str) -> None:
    first, second, other_fields = FIELD_VALUES[field]
    task = SEQUENCE_TASK if field in DecodeConfig.model_fields else TASK
    first_result, second_result = (
        measure_training(
            task, TrainConfig.model_validate(TRAIN | other_fields | {field: value}).model_dump(mode="json")
        )
        for value in (first, second)
    )
    assert first_result != second_result
