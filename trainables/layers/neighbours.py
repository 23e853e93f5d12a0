"""Who is next to whom, when positions exist only with a probability.

Source: Ray Chowdhury and Caragea, Modeling Hierarchical Structures with Continuous Recursive Neural Networks,
s. 3.2.1, with their released code, and On the Design Space Between Transformers and Recursive Neural Nets,
Eq. 13. With existential probabilities e, R_ij is how much j is the first position to the right of i that
exists, and L is its mirror image. For j > i there are two forms:

`additive`  R_ij = e_j if sum_{i<k<=j} e_k <= 1, else max(0, 1 - sum_{i<k<j} e_k)      (published runs)
`product`   R_ij = e_j prod_{i<k<j} (1 - e_k)                                           (what Eq. 13 prints)

The adjacent position is retrieved with e_j itself; the text below Eq. 13 would have it at zero.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

Retriever = Literal["additive", "product"]


def neighbours(
    exist: Float[Tensor, "B T"], retriever: Retriever
) -> tuple[Float[Tensor, "B T T"], Float[Tensor, "B T T"]]:
    """L and R of right-padded rows; padding exists with probability zero."""
    retrieve = _additive if retriever == "additive" else _product
    left = retrieve(_to_the_right(exist.flip(-1))).flip(-1, -2)
    return left, retrieve(_to_the_right(exist))


def _to_the_right(exist: Tensor) -> Tensor:
    """e_j for j > i, else zero."""
    return exist[:, None].expand(-1, exist.shape[-1], -1).triu(1)


def _additive(wide: Tensor) -> Tensor:
    # Sums of whole rows, not differences of one running sum: sums of exactly one must stay exactly one.
    upto = wide.cumsum(-1)
    return torch.where(upto > 1, (1 - _shift(upto, 0.0)).clamp(min=0), wide)


def _product(wide: Tensor) -> Tensor:
    return wide * _shift((1 - wide).cumprod(-1), 1.0)


def _shift(x: Tensor, first: float) -> Tensor:
    """What stands one column to the left."""
    return F.pad(x[..., :-1], (1, 0), value=first)
