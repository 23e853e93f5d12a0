"""Settings of chunked models."""

from typing import Any

import pytest
from pydantic import ValidationError

from trainables.assembly import model_config
from trainables.models import gutlb, tlb

parametrize_models = pytest.mark.parametrize("name", ["tlb", "gutlb"])


def test_defaults_equal_the_published_models_on_listops() -> None:
    for config in (tlb.Config(), gutlb.Config()):
        assert (config.width, config.heads) == (512, 8)
        assert (config.size_of_head, config.size_of_feedforward) == (64, 1024)
        assert (config.chunk.by, config.chunk.size, config.memory.slots) == ("size", 20, 20)
        assert (config.memory.update_layers, config.memory.start) == (1, "zeros")
        assert not config.memory.slot_positions
        assert (config.boundaries, config.readout, config.causal) == (False, "slots", False)
    assert tlb.Config().layers == 2
    assert (gutlb.Config().max_layers, gutlb.Config().size_of_gate) == (5, 1024)
    assert gutlb.Config().halt is not None


@parametrize_models
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"causal": True, "boundaries": True}, "boundaries=True"),
        ({"causal": True, "readout": "start"}, "readout='start'"),
        ({"chunk": {"size": 0}}, r"chunk.size.*\n.*greater_than_equal"),
    ],
)
def test_impossible_settings_raise_an_error(name: str, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        model_config({"name": name, **changes})


@pytest.mark.parametrize("name", ["transformer", "universal"])
def test_causal_model_cannot_have_a_start_readout(name: str) -> None:
    with pytest.raises(ValidationError, match="pooling='start' and causal=True"):
        model_config({"name": name, "causal": True, "pooling": "start"})
