"""What a model is made of, seen from its modules, is what PyTorch says of it."""

import pytest
import torch
from torch import nn

from orchestrator.plan.ablation_check.structure import Shapes
from trainables import catalog
from trainables.assembly import build_model
from trainables.types import TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=18, num_classes=10, pad_id=16, length_max=20, steps_max=20)


class Tied(nn.Module):
    """A module under two names, a weight under two, and buffers of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(3, 4, bias=False)
        self.other = self.one
        self.head = nn.Linear(3, 4)
        self.head.weight = self.one.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("kept", torch.zeros(2, 5))
        self.register_buffer("unsaved", torch.zeros(7), persistent=False)
        self.register_parameter("absent", None)


def reported(model: nn.Module) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """What PyTorch says, in its order."""
    parameters = {name: tuple(each.shape) for name, each in model.named_parameters()}
    return parameters, {name: tuple(each.shape) for name, each in model.state_dict().items()}


def test_what_is_shared_is_one_parameter_and_saved_under_each_name() -> None:
    parameters, saved = reported(Tied())
    found = Shapes.of(Tied())
    assert (found.parameters, found.saved) == (parameters, saved)
    assert {"one.weight", "other.weight", "head.weight", "kept"} <= found.saved.keys()
    assert "unsaved" not in found.saved
    assert "other.weight" not in found.parameters


@pytest.mark.parametrize("name", catalog.names("models"))
def test_every_model_has_the_shapes_that_pytorch_tells(name: str) -> None:
    config = catalog.config_class("models", name)()
    model = build_model(config, SHAPE, seed=0, device="meta")
    found = Shapes.of(model)
    parameters, saved = reported(model)
    assert list(found.parameters.items()) == list(parameters.items())
    assert list(found.saved.items()) == list(saved.items())
