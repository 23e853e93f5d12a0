"""Packed tokens to padded rows, in a form that is fused with what is done to them.

Legend: M packed tokens in B rows of T columns, D the width of a state.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from trainables.regions.compiling import region


def require_alike(sizes: Sequence[int], others: Sequence[int]) -> None:
    """Sizes that are the same in every call: said so that none is taken for a 1 that is repeated."""
    for one, other in zip(sizes, others, strict=True):
        torch._check(one == other)  # type: ignore[no-untyped-call]


def exact(dtype: torch.dtype) -> torch.dtype:
    """In what sums over `dtype` are taken, as `types.sum_dtype`: 32 bits or more."""
    return dtype if dtype == torch.float64 else torch.float32


class RowPlaces(NamedTuple):
    """Where packed tokens are in the padded form of their rows."""

    token: Int[Tensor, "B T"]
    """For each place of the padded form its token, in padding the row's last."""
    place: Int[Tensor, " M"]
    """Place of each token in the flattened padded form."""
    mask: Bool[Tensor, "B T"]
    """True where there is a token."""


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return x.index_select(0, out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (back,) = ctx.saved_tensors
        return grads[0].index_select(0, back), None, None


def moved(
    x: Shaped[Tensor, "M ..."], out: Int[Tensor, " N"], back: Int[Tensor, " M"]
) -> Shaped[Tensor, "N ..."]:
    """`x[out]`; the gradient of each is that of its place `back`."""
    made: Tensor = _Moved.apply(x, out, back)  # type: ignore[no-untyped-call]
    return made


@region
def means(x: Float[Tensor, "M D"], rows: RowPlaces, counts: Int[Tensor, " B"]) -> Float[Tensor, "B D"]:
    """Mean over the tokens of each row."""
    require_alike(counts.shape, rows.token.shape[:1])
    total: Tensor = padded(x, rows).sum(1)
    return total / counts[:, None]


def padded(x: Shaped[Tensor, "M D"], rows: RowPlaces) -> Shaped[Tensor, "B T D"]:
    """The padded form, zero where there is no token."""
    made = moved(x, rows.token.flatten(), rows.place)
    return made.view(*rows.token.shape, x.shape[1]) * rows.mask[..., None]
