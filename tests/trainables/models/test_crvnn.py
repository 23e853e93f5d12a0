"""Settings and initial weights of the continuous recursive network."""

from typing import Any

import pytest

from trainables.assembly import build_model
from trainables.models.crvnn import Config
from trainables.types import TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=18, num_classes=10, pad_id=16, length_max=100)
SMALL = {"name": "crvnn", "width": 16, "cell_width": 20}


def test_defaults_equal_the_published_network() -> None:
    config = Config()
    assert (config.width, config.size_of_cell, config.window) == (128, 512, 5)
    assert (config.dropout, config.cell_dropout, config.readout_dropout) == (0.1, 0.1, 0.1)
    assert (config.activation, config.cell) == ("gelu", "grc")
    assert (config.retriever, config.modulated, config.transition_features) == ("additive", True, None)
    assert config.halt.model_dump() == {"threshold": 0.1, "penalty": False}


@pytest.mark.parametrize("cell", [{}, {"cell": "lstm", "cell_width": None}])
def test_initial_distribution_is_glorot_uniform(cell: dict[str, Any]) -> None:
    """Bounds depend on inputs plus outputs; for the LSTM cell, on those of one gate and one child."""
    encoder = build_model(SMALL | cell | {"initial": "glorot"}, SHAPE, 0).encoder
    outer = 16 + 16 if cell else 20 + 64
    for name, fans in {"cell.leaf": 16 + 16, "cell.outer": outer, "scorer.inner": 80 + 16}.items():
        module, bound = encoder.get_submodule(name), (6 / fans) ** 0.5
        assert 0.85 * bound <= module.weight.abs().max() <= bound
        assert module.bias.abs().max() < 1e-5
