"""Costs of models are the same whether they are counted while planning, in training or while evaluating."""

import pytest
import torch

from trainables.counting import measure_cost
from trainables.models import transformer

CONFIG = transformer.Config(width=16, heads=2, feedforward_width=32, layers=2)


@pytest.mark.parametrize("gradient_mode", [torch.inference_mode, torch.no_grad])
def test_count_is_the_same_without_gradients(gradient_mode) -> None:
    measure_cost.cache_clear()
    cost_before = measure_cost(CONFIG, "Encoder", 7)
    assert cost_before.flops > 0
    assert cost_before.activation_bytes > 0
    measure_cost.cache_clear()
    with gradient_mode():
        assert measure_cost(CONFIG, "Encoder", 7) == cost_before
