"""Soft neighbours: how much each position is adjacent to another, given existential probabilities.

Source: Ray Chowdhury and Caragea, Modeling Hierarchical Structures with Continuous Recursive Neural Networks,
s. 3.2.1, with their released code, and On the Design Space Between Transformers and Recursive Neural Nets,
Eq. 13. With existential probabilities e, R_ij is the degree to which j is the first existing position to the
right of i, and L is its mirror image. For j > i there are two forms:

`additive`  R_ij = e_j if sum_{i<k<=j} e_k <= 1, else max(0, 1 - sum_{i<k<j} e_k)      (published runs)
`product`   R_ij = e_j prod_{i<k<j} (1 - e_k)                                           (as Eq. 13 prints)

The adjacent position is retrieved with e_j itself; according to the text below Eq. 13 it would be zero.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from trainables.layers.host import Function

Retriever = Literal["additive", "product"]


class _Additive(Function):
    """The additive form as a minimum: R_ij = min(e_j, max(0, 1 - sum_{i<k<j} e_k)).

    A weight before the sum reaches one has gradient 1 for its own e_j. The first weight that does not fit has
    gradient -1 for every e_k in its sum, that is, for all earlier ones. The other gradients are zero. The
    backward pass therefore needs no running sums, and only two masks are stored.
    """

    @staticmethod
    def forward(ctx: Any, exist: Tensor) -> Tensor:
        all_pairs = exist.new_ones(exist.shape[-1], exist.shape[-1])
        upper = all_pairs.triu(1)
        upper_rows = exist[:, None] * upper
        # Rows are summed one by one, because differences of a running sum round: a sum of 1.0 must stay 1.0.
        sum_before = (F.pad(exist[:, :-1], (1, 0))[:, None] * all_pairs.triu(2)).cumsum(-1)
        remainder = 1 - sum_before
        exceeds = upper_rows > remainder
        ctx.save_for_backward(exceeds.logical_not() & upper.bool(), exceeds & (remainder >= 0))
        return torch.minimum(upper_rows, remainder.clamp_(min=0))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        all_weights, first = ctx.saved_tensors
        (grad,) = grads
        weighted_sum = (grad * first).sum(-1, keepdim=True)
        return torch.sum((grad - weighted_sum) * all_weights, -2)


def neighbours(
    exist: Float[Tensor, "B T"], retriever: Retriever
) -> tuple[Float[Tensor, "B T T"], Float[Tensor, "B T T"]]:
    """Return the left and right neighbour matrices L and R of right-padded rows.

    Args:
        exist: Existential probabilities, (rows, length); zero at padding.
        retriever: Form of the matrices.
    """
    retrieve = _additive if retriever == "additive" else _product
    return retrieve(exist.flip(-1)).flip(-1, -2), retrieve(exist)


def _additive(exist: Tensor) -> Tensor:
    weights: Tensor = _Additive.run(exist)
    return weights


def _product(exist: Tensor) -> Tensor:
    upper_rows = exist[:, None].expand(-1, exist.shape[-1], -1).triu(1)
    return upper_rows * F.pad((1 - upper_rows).cumprod(-1)[..., :-1], (1, 0), value=1.0)
