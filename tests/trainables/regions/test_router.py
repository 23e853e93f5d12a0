"""The compiled step of the Neural Data Router against the one that it is the twin of."""

import pytest
import torch
from torch import Tensor

from trainables.layers.geometric import Portion, attend_nearest, barred_keys
from trainables.regions.router import nearest_weights, tried_up_to


def normal(*shape: int, seed: int = 1, deviation: float = 3.0) -> Tensor:
    return deviation * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def keys(lengths: tuple[int, ...], width: int) -> Tensor:
    return torch.arange(width) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 12])
def test_keys_are_tried_from_the_nearest_on_the_right_one_first(width: int) -> None:
    x, here = normal(2, 3, width, width), range(width)
    x.diagonal(dim1=-2, dim2=-1).zero_()
    found = tried_up_to(x)
    for query in here:
        order = sorted((key for key in here if key != query), key=lambda key: (abs(key - query), key < query))
        total = torch.zeros_like(x[..., query, 0])
        for key in order:
            total = total + x[..., query, key]
            torch.testing.assert_close(found[..., query, key], total)


@pytest.mark.parametrize("normalise", [True, False])
def test_weights_and_gradients_are_those_of_the_layer(*, normalise: bool) -> None:
    width, lengths = 9, (9, 3, 6)
    logits, upstream = normal(3, 2, width, width), normal(3, 2, width, width, seed=2)
    barred = barred_keys(keys(lengths, width), logits.dtype)
    one, other = (logits.clone().requires_grad_() for _ in range(2))
    units = torch.eye(width, dtype=logits.dtype).expand(3, 2, -1, -1)
    zero = logits.new_zeros((3, 2, width, 1))
    layer = attend_nearest(one, units, units, zero, None, (Portion.of(barred),), normalise=normalise)
    twin = nearest_weights(other + barred, normalise=normalise)
    torch.testing.assert_close(twin, layer)
    layer.backward(upstream)
    twin.backward(upstream)
    torch.testing.assert_close(other.grad, one.grad)


def test_near_keys_of_long_rows_keep_their_digits() -> None:
    """What they take is no difference of what hundreds take together."""
    width, near = 600, 8
    logits = 1.0 + barred_keys(keys((width,), width), torch.float64)
    found, exact = (nearest_weights(each, normalise=False) for each in (logits.float(), logits))
    here = torch.arange(width)
    close = (here - here[:, None]).abs() <= near
    torch.testing.assert_close(found.double()[..., close], exact[..., close], atol=0.0, rtol=3e-6)
