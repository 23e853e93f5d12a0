"""Soft neighbours equal cases made by hand, and satisfy general properties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainables.recurrence.neighbours import Retriever, neighbours

BOTH = pytest.mark.parametrize("retriever", ["additive", "product"])


@BOTH
def test_neighbours_skip_positions_that_do_not_exist(retriever: Retriever) -> None:
    left, right = neighbours(torch.tensor([[1.0, 0, 1, 0, 1, 0]]), retriever)
    nobody = [0.0] * 6
    assert left[0].tolist() == [nobody, *(one_hot(j) for j in (0, 0, 2, 2, 4))]
    assert right[0].tolist() == [*(one_hot(j) for j in (2, 2, 4, 4)), nobody, nobody]


def one_hot(j: int) -> list[float]:
    return [float(k == j) for k in range(6)]


def test_retrievers_distribute_the_remaining_weight_differently() -> None:
    exist = torch.tensor([[1.0, 0.5, 0.75, 1.0]])
    assert neighbours(exist, "additive")[1][0, 0].tolist() == [0.0, 0.5, 0.5, 0.0]
    assert neighbours(exist, "product")[1][0, 0].tolist() == [0.0, 0.5, 0.375, 0.125]


@BOTH
@pytest.mark.parametrize("length", [1, 2, 7])
def test_gradients_equal_finite_differences(retriever: Retriever, length: int) -> None:
    """The additive retriever has its own backward pass."""
    stream = torch.Generator().manual_seed(length)
    exist = torch.rand(3, length, generator=stream, dtype=torch.float64) * 0.8
    exist.requires_grad_()
    assert torch.autograd.gradcheck(lambda each: neighbours(each, retriever), (exist,))


@BOTH
@given(row=st.lists(st.floats(0, 1, width=32), min_size=1, max_size=7), padding=st.integers(0, 3))
def test_weights_of_a_row_sum_to_at_most_one_and_are_mirror_images(
    retriever: Retriever, row: list[float], padding: int
) -> None:
    exist = torch.tensor([row], dtype=torch.float64)
    padded = torch.nn.functional.pad(exist, (0, padding))
    left, right = (each[:, : len(row), : len(row)] for each in neighbours(padded, retriever))
    for wide in neighbours(padded, retriever):
        assert (wide[:, :, len(row) :] == 0).all()
    assert (right >= 0).all()
    assert (right.sum(-1) <= 1 + 1e-9).all()
    assert not right.tril().any()
    torch.testing.assert_close(left, neighbours(exist.flip(-1), retriever)[1].flip(-1, -2))
    torch.testing.assert_close(right, neighbours(exist, retriever)[1])
