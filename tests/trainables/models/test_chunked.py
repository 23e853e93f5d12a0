"""Settings and depth of chunked models, and the information flow through their memory."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from trainables.assembly import build_model, model_config
from trainables.models import gutlb, tlb
from trainables.types import Batch, Output, TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=18, num_classes=10, pad_id=16, length_max=100)
every_system = pytest.mark.parametrize("name", ["tlb", "gutlb"])


def test_defaults_equal_the_published_models_on_listops() -> None:
    for config in (tlb.Config(), gutlb.Config()):
        assert (config.width, config.heads, config.size_of_head, config.size_of_feedforward) == (
            512,
            8,
            64,
            1024,
        )
        assert (config.chunk.by, config.chunk.size, config.memory.slots) == ("size", 20, 20)
        assert (config.memory.update_layers, config.memory.start) == (1, "zeros")
        assert not config.memory.slot_positions
        assert (config.boundaries, config.readout, config.causal) == (False, "slots", False)
    assert tlb.Config().layers == 2
    assert (gutlb.Config().max_layers, gutlb.Config().size_of_gate) == (5, 1024)
    assert gutlb.Config().halt is not None


@every_system
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"causal": True, "boundaries": True}, "boundaries=True"),
        ({"causal": True, "readout": "start"}, "readout='start'"),
        ({"chunk": {"size": 0}}, r"chunk.size.*\n.*greater_than_equal"),
        ({"chunk": {"count": 0}}, r"chunk.count.*\n.*greater_than_equal"),
        ({"chunk": {"by": "length"}}, r"chunk.by.*\n.*literal_error"),
        ({"memory": {"slots": 0}}, r"memory.slots.*\n.*greater_than_equal"),
        ({"memory": {"update_layers": 0}}, r"memory.update_layers.*\n.*greater_than_equal"),
        ({"readout": "slot"}, r"readout.*\n.*literal_error"),
    ],
)
def test_impossible_settings_raise_an_error(name: str, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        model_config({"name": name, **changes})


@pytest.mark.parametrize("name", ["transformer", "universal"])
def test_causal_model_cannot_have_a_start_readout(name: str) -> None:
    with pytest.raises(ValidationError, match="pooling='start' and causal=True"):
        model_config({"name": name, "causal": True, "pooling": "start"})


def build(name: str, **options: Any) -> nn.Module:
    raw = {"name": name, "width": 16, "heads": 2, "chunk": {"size": 4}, "memory": {"slots": 4}} | options
    return build_model(raw, SHAPE, 0).eval()


def run(model: nn.Module, length: int = 12, rows: int = 3) -> Output:
    tokens = torch.randint(0, 16, (rows, length), generator=torch.Generator().manual_seed(1))
    output = model(Batch(tokens, tokens < 16, tokens[:, 0] % 10))
    assert isinstance(output, Output)
    return output


@pytest.mark.parametrize(("mode", "run_layers"), [("none", 6.0), ("batch", 1.0), ("compact", 1.0)])
def test_chunk_ends_when_all_tokens_have_halted(mode: str, run_layers: float) -> None:
    model = build("gutlb", early_exit=mode, max_layers=6)
    model.encoder.halt.outer.bias.data.fill_(20.0)
    encoded = run(model).encoded
    assert encoded.depth.tolist() == [0.0] * 3
    assert encoded.computed.tolist() == [run_layers] * 3
    assert encoded.bound.tolist() == [6.0] * 3


def test_last_chunk_stops_at_its_length() -> None:
    """Chunks of four, four and one token have at most five, five and two layers."""
    model = build("gutlb", max_layers=9, chunk={"size": 4, "even": False}, halt={"threshold": 1.0})
    assert run(model, length=9).encoded.depth.tolist() == [4.0] * 3


@every_system
def test_earlier_chunks_act_only_through_memory(name: str) -> None:
    model = build(name, readout="end", memory={"slots": 4, "start": "random"}).double()
    x = torch.randn(1, 12, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x.requires_grad_()
    mask = torch.ones(1, 12, dtype=torch.bool)
    (grad,) = torch.autograd.grad(model.encoder(x, mask).pooled.sum(), x)
    assert grad.abs().sum(-1).min() > 0
    for update in model.encoder.memory.updates:
        update.recall.attention.output.weight.data.zero_()
    (grad,) = torch.autograd.grad(model.encoder(x, mask).pooled.sum(), x)
    assert not grad[:, :8].any()
    assert grad[:, 8:].any()


@every_system
def test_first_token_attends_to_the_whole_memory(name: str) -> None:
    """The mask of a chunk must not apply to the memory: the first token attends to the last slot."""
    model = build(name, causal=True, memory={"slots": 4, "start": "random"}).double()
    x = torch.randn(1, 4, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    states = model.encoder(x, torch.ones(1, 4, dtype=torch.bool)).states
    (grad,) = torch.autograd.grad(states[0, 0].sum(), model.encoder.memory.slots.weight)
    assert grad.abs().sum(-1).min() > 0
