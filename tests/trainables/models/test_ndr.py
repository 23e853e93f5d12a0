"""Settings of the Neural Data Router, its two depths and its gate."""

from typing import Any

import pytest
import torch
from torch import Tensor

from trainables.assembly import build_model
from trainables.layers.dropout import set_dropout_context
from trainables.models.ndr import Config
from trainables.types import Batch, Encoded, TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=18, num_classes=10, pad_id=16, length_max=100)
SMALL = {"name": "ndr", "width": 16, "heads": 2, "layers": 2, "test_layers": 5}


def batch() -> Batch:
    tokens = torch.arange(24).reshape(3, 8) % 10
    return Batch(tokens, tokens >= 0, tokens[:, 0])


def encode(training: bool, **changes: Any) -> tuple[torch.nn.Module, Encoded]:
    model = build_model(SMALL | changes, SHAPE, 0).train(training)
    set_dropout_context(model, 0, 0)
    return model, model(batch()).encoded


def test_defaults_equal_the_published_router() -> None:
    config = Config()
    assert (config.width, config.heads) == (512, 16)
    assert (config.size_of_head, config.size_of_feedforward) == (32, 1024)
    assert (config.layers, config.test_layers) == (20, 24)
    assert (config.dropout, config.attention_dropout, config.gate_dropout) == (0.1, 0.1, 0.05)
    assert (config.normalise_rows, config.direction, config.pooling) == (True, True, "end")


def test_depths_in_training_and_evaluation_are_separate_settings() -> None:
    assert encode(training=True)[1].computed.tolist() == [2.0] * 3
    assert encode(training=False)[1].computed.tolist() == [5.0] * 3


def test_gates_start_nearly_closed() -> None:
    model, _ = encode(training=False)
    gate = model.encoder.layer.gate
    assert float(gate.outer.bias.detach().mean()) == pytest.approx(-3.0, abs=1e-4)
    gate.outer.bias.data.fill_(-100.0)
    x = torch.randn(3, 8, 16, generator=torch.Generator().manual_seed(0))
    states = model.encoder(x, batch().mask).states
    torch.testing.assert_close(states[:, 1:-1], x)


def test_gate_dropout_closes_whole_positions_in_training() -> None:
    """With an open gate and one step, only positions with a dropped gate keep their state."""
    rates = {"gate_dropout": 0.5, "dropout": 0.0, "attention_dropout": 0.0, "layers": 1, "test_layers": 1}
    model, _ = encode(training=True, **rates)
    model.encoder.layer.gate.outer.bias.data.fill_(100.0)
    x = torch.randn(3, 8, 16, generator=torch.Generator().manual_seed(0))

    def kept_positions(states: Tensor) -> Tensor:
        return (states[:, 1:-1] == x).float().mean(-1)

    set_dropout_context(model, 0, 0)
    share = kept_positions(model.encoder(x, batch().mask).states)
    assert set(share.unique().tolist()) == {0.0, 1.0}
    assert 0.2 < share.mean() < 0.8
    assert not kept_positions(model.eval().encoder(x, batch().mask).states).any()
