"""START and END around ragged rows: the same tokens and gradients as row by row."""

import pytest
import torch
from torch import Tensor

from trainables.layers.boundaries import Boundaries

LENGTHS = torch.tensor([3, 0, 5, 1])
COLUMNS = 5


def layer() -> Boundaries:
    made = Boundaries(2).double()
    made.start.weight.data = torch.tensor([10.0, 20.0], dtype=torch.float64)
    made.end.weight.data = torch.tensor([30.0, 40.0], dtype=torch.float64)
    return made


def rows(columns: int) -> tuple[Tensor, Tensor]:
    x = torch.arange(len(LENGTHS) * columns * 2, dtype=torch.float64).view(len(LENGTHS), columns, 2)
    return x.requires_grad_(), torch.arange(columns) < LENGTHS[:, None]


def row_by_row(made: Boundaries, x: Tensor) -> Tensor:
    start, end = made.start()[None], made.end()[None]
    return torch.cat([torch.cat((start, row[:length], end)) for row, length in zip(x, LENGTHS, strict=True)])


@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS + 3])
def test_each_row_stands_between_them_and_has_the_gradients_that_single_rows_have(columns: int) -> None:
    made, (x, mask) = layer(), rows(columns)
    inputs = x, made.start.weight, made.end.weight
    states, packing = made(x, mask)
    expected = row_by_row(made, x)
    assert packing.counts.tolist() == (LENGTHS + 2).tolist()
    assert torch.equal(states, expected)
    toward = torch.arange(states.numel(), dtype=states.dtype).view_as(states)
    found, known = (torch.autograd.grad(each, inputs, toward) for each in (states, expected))
    assert all(map(torch.equal, found, known))
