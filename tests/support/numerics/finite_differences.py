"""Gradients against finite differences, which take hundreds of calls."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tests.support.numerics.checked_shapes import unchecked


def gradients_agree(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> bool:
    """As `gradcheck`. Shapes of the first call are checked as ever; all others have the same."""
    torch.autograd.grad(function(*inputs).sum(), inputs, allow_unused=True)
    with unchecked():
        return bool(torch.autograd.gradcheck(function, tuple(inputs)))
