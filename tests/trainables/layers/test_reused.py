"""Gradients of weights that are used again and again are those that PyTorch adds up, by fewer kernels."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.kernel_count import counted
from trainables.layers.linear import joined
from trainables.layers.packing import Packing
from trainables.layers.recomputing import RecomputableLayer, recompute, reusing
from trainables.layers.tokens import Placed

WIDTH, ROWS, TIMES = 6, 5, 4


class Layer(RecomputableLayer):
    """A map and a norm, a vector that only odd uses see, and a weight that is made once for all uses."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.shift, self.unused = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(1))
        self.parts = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))

    def forward(self, x: Tensor, placed: Placed, number: int) -> Tensor:
        x = self.inner(self.norm(x)).tanh()
        weight = placed.once((self, "both"), lambda: joined(*(part.weight for part in self.parts)))
        one, other = F.linear(x, weight).chunk(2, 1)
        x = x + one * other
        return x * self.shift if number % 2 else x


@contextmanager
def nothing(_: nn.Module) -> Iterator[None]:
    yield


def made() -> tuple[Layer, Tensor, Placed]:
    torch.manual_seed(0)
    x = torch.randn(ROWS, WIDTH, requires_grad=True)
    return Layer(), x, Placed(Packing.of_lengths(torch.tensor([ROWS]), ROWS), torch.arange(ROWS))


def ran(layer: Layer, x: Tensor, placed: Placed) -> Tensor:
    for number in range(TIMES):
        x = layer(x, placed.alone() if layer.recomputes else placed, number)
    return x.square().sum()


def gradients(how) -> dict[str, Tensor | None]:
    layer, x, placed = made()
    with how(layer):
        loss = ran(layer, x, placed)
    loss.backward()
    return {name: weight.grad for name, weight in layer.named_parameters()} | {"x": x.grad}


def test_sums_are_the_same_to_the_bit() -> None:
    found, expected = gradients(reusing), gradients(nothing)
    assert expected["unused"] is None
    for name, gradient in expected.items():
        assert gradient is None or torch.equal(found[name], gradient), name
        assert (found[name] is None) == (gradient is None), name


def test_they_are_added_by_fewer_kernels() -> None:
    def kernels(how) -> int:
        return counted(lambda: gradients(how)).kernels

    # Of six weights and one that was made, all but one use each is added to the others.
    assert kernels(reusing) <= kernels(nothing) - 2 * (TIMES - 1)


def test_a_second_backward_pass_begins_anew() -> None:
    layer, x, placed = made()
    with reusing(layer):
        loss = ran(layer, x, placed)
    weights = [layer.inner.weight, layer.norm.bias, layer.parts[0].weight]
    first = torch.autograd.grad(loss, weights, retain_graph=True)
    for one, other in zip(first, torch.autograd.grad(loss, weights), strict=True):
        assert torch.equal(one, other)


def test_weights_are_the_parameters_again_whatever_happens_inside() -> None:
    layer, x, placed = made()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), reusing(layer):
        F.linear(layer(x, placed, 0), torch.ones(3, 4))
    assert all(isinstance(each, nn.Parameter) for each in layer.parameters())
    assert layer.reused is None
    with pytest.raises(RuntimeError, match="normalized_shape"), reusing(layer):
        layer(x[:, :3], placed, 0)
    assert all(isinstance(each, nn.Parameter) for each in layer.parameters())


def test_nothing_is_done_without_gradients_or_where_layers_are_run_again() -> None:
    layer, _, _ = made()
    with torch.no_grad(), reusing(layer):
        assert layer.reused is None
    with reusing(layer), reusing(layer):
        outer = layer.reused
        assert outer is not None
    recompute(layer)
    with reusing(layer):
        assert layer.reused is None
    layer.requires_grad_(requires_grad=False).recomputes = False
    with reusing(layer, None):
        assert layer.reused is None


def test_under_autocast_every_weight_is_cast_once() -> None:
    def casts(how) -> int:
        with torch.autocast("cpu", torch.bfloat16):
            return counted(lambda: gradients(how)).by_name["_to_copy"]

    # Weights that are joined are cast one by one, once and back.
    assert casts(reusing) <= casts(nothing) + 2
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = gradients(reusing), gradients(nothing)
    for name in ("inner.weight", "norm.bias", "parts.0.weight", "x"):
        assert torch.equal(found[name], expected[name]), name
