"""The compiled step of soft composition against the one that it is the twin of."""

from typing import Any

import pytest
import torch

from tests.support.box import MODELS, built
from trainables.layers import neighbours as layer
from trainables.regions.compiling import Compiler
from trainables.regions.composition import neighbours
from trainables.testing.arms import BASE, having
from trainables.testing.cases import batch, check_same, trained
from trainables.testing.contract import check_close


@pytest.mark.parametrize("width", [1, 2, 9])
@pytest.mark.parametrize("whole", [True, False])
def test_neighbours_and_gradients_are_those_of_the_layer(width: int, *, whole: bool) -> None:
    """`whole`: sums that reach exactly one, where a step of the minimum is."""
    stream = torch.Generator().manual_seed(width)
    exist = torch.rand(4, width, generator=stream, dtype=torch.float64)
    one, other = ((exist.round() if whole else exist).clone().requires_grad_() for _ in range(2))
    upstream = torch.randn(2, 4, width, width, generator=stream, dtype=torch.float64)
    ours, theirs = neighbours(one), layer.neighbours(other, "additive")
    for each, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(each, expected)
    torch.autograd.backward(ours, list(upstream))
    torch.autograd.backward(theirs, list(upstream))
    torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"cell": "lstm", "tanh_gelu": True},
        {"activation": "relu", "transition_features": None},
        {"modulated": False, "shared_norm": True},
        {"window": 1},
        {"halt": None, "cell_dropout": 0.0},
        {"early_exit": "none"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_every_form_of_a_step_is_compiled(changed: dict[str, Any]) -> None:
    raw = having(MODELS["crvnn"]().every_arm()[BASE], **{"dropout": 0.2, "cell_dropout": 0.1} | changed)
    model, compiler = built(raw), Compiler("eager")
    output, gradients = trained(model, batch())
    with compiler.running():
        again, others = trained(model, batch())
    assert compiler.graphs > 0
    check_same(again.encoded, output.encoded, f"compiled, with {changed}, it must be the same")
    assert others.keys() == gradients.keys()
    for name, gradient in gradients.items():
        check_close(others[name], gradient, f"compiled, with {changed}, it must be the same: {name}")
