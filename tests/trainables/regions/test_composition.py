"""The compiled step of soft composition against the one that it is the twin of."""

import pytest
import torch

from trainables.layers import neighbours as layer
from trainables.regions.composition import neighbours


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
