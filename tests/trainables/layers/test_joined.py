"""Weights of maps of the same inputs, put together for all layers at once."""

import pytest
import torch
from torch import Tensor

from trainables.layers.linear import joined, joined_sets


def sets(dtype: torch.dtype = torch.float32) -> list[list[Tensor]]:
    stream = torch.Generator().manual_seed(0)

    def weight(rows: int) -> Tensor:
        return torch.randn(rows, 3, generator=stream).to(dtype).requires_grad_()

    return [[weight(2), weight(4)], [weight(1), weight(2), weight(2)], [weight(5)]]


@pytest.mark.parametrize("autocast", [False, True])
def test_each_set_is_what_joining_it_alone_gives_and_so_are_gradients(autocast: bool) -> None:
    given = sets()
    weights = [each for alike in given for each in alike]
    with torch.autocast("cpu", enabled=autocast):
        together, alone = joined_sets(given), [joined(*alike) for alike in given]
    assert all(
        one.dtype == other.dtype and torch.equal(one, other)
        for one, other in zip(together, alone, strict=True)
    )
    found, known = (
        torch.autograd.grad(sum((each.float() ** 2).sum() for each in made), weights)
        for made in (together, alone)
    )
    assert all(
        one.dtype == other.dtype and torch.equal(one, other) for one, other in zip(found, known, strict=True)
    )


def test_each_begins_memory_of_its_own() -> None:
    made = joined_sets(sets())
    assert all(each.storage_offset() == 0 for each in made)
    assert len({each.untyped_storage().data_ptr() for each in made}) == len(made)


def test_weights_of_what_is_not_used_have_no_gradient() -> None:
    given = sets()
    used, _, _ = joined_sets(given)
    used.sum().backward()
    assert [[each.grad is not None for each in alike] for alike in given] == [
        [True, True],
        [False, False, False],
        [False],
    ]
