"""Compare gradients with finite differences."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tests.support.numerics.checked_shapes import without_shape_checks


def gradients_agree(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> bool:
    """Call `gradcheck`, with shape checks only in the first of its hundreds of equal calls."""
    torch.autograd.grad(function(*inputs).sum(), inputs, allow_unused=True)
    with without_shape_checks():
        return bool(torch.autograd.gradcheck(function, tuple(inputs)))
