"""Memory slots stay identical unless random starts, positions or dropout distinguish them."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainables.assembly import build_model
from trainables.layers.dropout import set_dropout_context
from trainables.types import Batch, Output, TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=7, num_classes=5, pad_id=6, length_max=20)
BASE = {"width": 12, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0, "chunk": {"size": 3}}
SLOTS = 4
parametrize_models = pytest.mark.parametrize("name", ["tlb", "gutlb"])


def build(name: str, **memory: Any) -> nn.Module:
    return build_model({"name": name, **BASE, "memory": {"slots": SLOTS, **memory}}, SHAPE, 3).double()


def batch() -> Batch:
    tokens = torch.randint(0, 6, (6, 10), generator=torch.Generator().manual_seed(0))
    return Batch(tokens, tokens < 6, tokens[:, 0] % 5)


def train_steps(model: nn.Module, steps: int = 5) -> Output:
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.98), weight_decay=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        model(batch()).loss.sum().backward()
        optimiser.step()
    output = model(batch())
    assert isinstance(output, Output)
    return output


def spread(slots: Tensor) -> float:
    return (slots - slots[:1]).abs().max().item()


@parametrize_models
def test_slots_that_start_at_zero_stay_identical(name: str) -> None:
    """The test runs without dropout, which breaks the symmetry in the published runs."""
    several_slots, one_slot = build(name), build(name, slots=1)
    outputs = train_steps(several_slots, steps=0), train_steps(one_slot, steps=0)
    torch.testing.assert_close(outputs[0].loss, outputs[1].loss)
    assert not several_slots.encoder.memory.slots.weight.any()
    train_steps(several_slots)
    slots = several_slots.encoder.memory.slots.weight
    assert slots.abs().max() > 1e-3
    assert spread(slots) < 1e-9


@parametrize_models
def test_slot_positions_make_slots_differ(name: str) -> None:
    model = build(name, slot_positions=True)
    train_steps(model)
    assert spread(model.encoder.memory.slots.weight) > 1e-4


@parametrize_models
def test_dropout_breaks_the_symmetry(name: str) -> None:
    model = build_model({"name": name, **BASE, "dropout": 0.2, "memory": {"slots": SLOTS}}, SHAPE, 3)
    set_dropout_context(model, 0, 0)
    model(batch()).loss.sum().backward()
    assert spread(model.encoder.memory.slots.weight.grad) > 0
