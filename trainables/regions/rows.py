"""Packed tokens to padded rows of heads and back, in a form that is fused with what is done to them.

Padding repeats the last token of its row; it is barred as a key and left out again as a query, so that it has
no gradient (`layers.head_rows`, of which these are the twins).

Legend: M packed tokens in B rows of T columns, P parts (queries, keys, values), H heads of width E.
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

    def out(self, heads: int, parts: int) -> Int[Tensor, " P_B_H_T"]:
        """For each row of the padded layout, where it is among the packed ones."""
        device = self.token.device
        number = torch.arange(parts, device=device)[:, None] * heads + torch.arange(heads, device=device)
        found = self.token[:, None] * (parts * heads) + number[:, None, :, None]
        return found.flatten()

    def back(self, heads: int, parts: int) -> Int[Tensor, " M_P_H"]:
        """For each of the packed ones, where it is in the padded layout."""
        rows, width = self.token.shape
        device = self.token.device
        part, head = torch.arange(parts, device=device), torch.arange(heads, device=device)
        begin = (part[:, None] * (rows * heads) + head) * width
        column = self.place % width
        row = self.place // width
        return ((row * heads * width + column)[:, None, None] + begin).flatten()

    def real(self, heads: int) -> Bool[Tensor, " B_H_T"]:
        """Rows of the padded layout that are no padding."""
        every = torch.ones(heads, 1, dtype=torch.bool, device=self.mask.device)
        return (self.mask[:, None] & every).flatten()


class _SpreadPlaces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return x.index_select(0, out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (back,) = ctx.saved_tensors
        return grads[0].index_select(0, back), None, None


class _GatherPlaces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor, back: Tensor, real: Tensor) -> Tensor:
        ctx.save_for_backward(out, real)
        return x.index_select(0, back)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        out, real = ctx.saved_tensors
        return grads[0].index_select(0, out) * real[:, None], None, None, None


def spread(x: Float[Tensor, "M P H E"], rows: RowPlaces) -> Float[Tensor, "P B H T E"]:
    """Rows of heads in the padded layout, contiguous."""
    _, parts, heads, width = x.shape
    made: Tensor = _SpreadPlaces.apply(  # type: ignore[no-untyped-call]
        x.reshape(-1, width), rows.out(heads, parts), rows.back(heads, parts)
    )
    return made.view(parts, rows.token.shape[0], heads, rows.token.shape[1], width)


def gather(x: Float[Tensor, "B_H T E"], heads: int, rows: RowPlaces) -> Float[Tensor, "M D"]:
    """What belongs to tokens of the padded layout, the heads of each beside each other."""
    width = x.shape[2]
    made: Tensor = _GatherPlaces.apply(  # type: ignore[no-untyped-call]
        x.reshape(-1, width), rows.out(heads, 1), rows.back(heads, 1), rows.real(heads)
    )
    return made.view(-1, heads * width)


@region
def means(x: Float[Tensor, "M D"], rows: RowPlaces, counts: Int[Tensor, " B"]) -> Float[Tensor, "B D"]:
    """Mean over the tokens of each row."""
    require_alike(counts.shape, rows.token.shape[:1])
    total: Tensor = padded(x, rows).sum(1)
    return total / counts[:, None]


def padded(x: Shaped[Tensor, "M D"], rows: RowPlaces) -> Shaped[Tensor, "B T D"]:
    """The padded form, zero where there is no token."""
    made: Tensor = _SpreadPlaces.apply(x, rows.token.flatten(), rows.place)  # type: ignore[no-untyped-call]
    return made.view(*rows.token.shape, x.shape[1]) * rows.mask[..., None]
