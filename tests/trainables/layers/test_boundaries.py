"""START and END around rows of different lengths give the same tokens and gradients as single rows."""

import pytest
import torch
from torch import Tensor

from trainables.layers.boundaries import Boundaries

LENGTHS = torch.tensor([3, 0, 5, 1])
COLUMNS = 5


def build_boundaries() -> Boundaries:
    boundaries = Boundaries(2).double()
    boundaries.start.weight.data = torch.tensor([10.0, 20.0], dtype=torch.float64)
    boundaries.end.weight.data = torch.tensor([30.0, 40.0], dtype=torch.float64)
    return boundaries


def rows(columns: int) -> tuple[Tensor, Tensor]:
    x = torch.arange(len(LENGTHS) * columns * 2, dtype=torch.float64).view(len(LENGTHS), columns, 2)
    return x.requires_grad_(), torch.arange(columns) < LENGTHS[:, None]


def row_by_row(boundaries: Boundaries, x: Tensor) -> Tensor:
    start, end = boundaries.start()[None], boundaries.end()[None]
    return torch.cat([torch.cat((start, row[:length], end)) for row, length in zip(x, LENGTHS, strict=True)])


@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS + 3])
def test_boundaries_enclose_each_row_with_the_gradients_of_single_rows(columns: int) -> None:
    boundaries, (x, mask) = build_boundaries(), rows(columns)
    inputs = x, boundaries.start.weight, boundaries.end.weight
    states, packing = boundaries(x, mask)
    expected = row_by_row(boundaries, x)
    assert packing.counts.tolist() == (LENGTHS + 2).tolist()
    assert torch.equal(states, expected)
    output_grad = torch.arange(states.numel(), dtype=states.dtype).view_as(states)
    grads, expected_grads = (
        torch.autograd.grad(output, inputs, output_grad) for output in (states, expected)
    )
    assert all(map(torch.equal, grads, expected_grads))
