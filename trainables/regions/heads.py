"""Heads of packed tokens to the padded rows that attention reads, and back: each way one kernel.

Padding repeats the last token of its row; it is barred as a key and left out again as a query, so that it has
no gradient (`layers.head_rows`, of which these are the twins).

Legend: M packed tokens in B rows of T columns, P parts, H heads of width E, C copies of
every key.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainables.regions.rows import RowPlaces

Parts = tuple[Float[Tensor, "B CT H E"], ...]


class Turning(NamedTuple):
    """How queries and keys are rotated and scaled."""

    position: Int[Tensor, " M"]
    table: Float[Tensor, "K P 2 E"]
    """Of each position and part what numbers are multiplied by, and the numbers they are paired with."""

    def of(self, first: int, parts: int) -> Float[Tensor, "M P 2 E"]:
        """Of each token, from part `first` on."""
        return self.table[:, first : first + parts].index_select(0, self.position)


def turned(
    x: Float[Tensor, "M P H E"], factors: Float[Tensor, "M P 2 E"] | None, *, back: bool = False
) -> Float[Tensor, "M P H E"]:
    """Pairs of numbers, read as complex ones, times factors, in the precision of these.

    `back`: times what gives the gradient of that.
    """
    if factors is None:
        return x
    exact = x.to(factors.dtype)
    others = exact.view(*exact.shape[:-1], -1, 2).flip(-1).flatten(-2) * factors[:, :, 1, None]
    straight = exact * factors[:, :, 0, None]
    made: Tensor = straight - others if back else straight + others
    return made.to(x.dtype)


class _SpreadParts(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, factors: Tensor | None, rows: tuple[Tensor, Tensor], parts: tuple[bool, int]
    ) -> Parts:
        (token, place), (queries, copies) = rows, parts
        ctx.save_for_backward(factors, place)
        ctx.queries, ctx.copies = parts
        wide = turned(x, factors).index_select(0, token.flatten())
        wide = wide.view(*token.shape, 1, *x.shape[1:])
        if copies > 1:
            # Copies of a key are alike; of a value all but the first are zero.
            kept = torch.arange(copies, device=x.device)[:, None] == 0
            values = torch.arange(x.shape[1], device=x.device) == x.shape[1] - 1
            wide = torch.where((kept | ~values)[..., None, None], wide, 0.0)
        every = wide.flatten(1, 2)
        found = tuple(every.select(2, part) for part in range(int(queries), x.shape[1]))
        return (wide[:, :, 0, 0], *found) if queries else found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        factors, place = ctx.saved_tensors
        found = []
        for number, grad in enumerate(grads):
            copies = 1 if ctx.queries and number == 0 else ctx.copies
            part = grad.reshape(grad.shape[0], -1, copies, *grad.shape[2:])
            here = part.flatten(0, 1).index_select(0, place)
            here = here[:, :1] if number == len(grads) - 1 else here.sum(1, keepdim=True)
            # Part by part: what is put together first is written first.
            factor = None if factors is None else factors[:, number : number + 1]
            found.append(turned(here, factor, back=True))
        return torch.cat(found, 1), None, None, None


class _SpreadQueries(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factors: Tensor | None, token: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(factors, place)
        return turned(x, factors).index_select(0, token.flatten()).view(*token.shape, *x.shape[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        factors, place = ctx.saved_tensors
        grad = grads[0].flatten(0, 1).index_select(0, place)[:, None]
        return turned(grad, factors, back=True), None, None, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, place: Tensor, token: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(token, mask)
        return x.flatten(0, 1).index_select(0, place)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        token, mask = ctx.saved_tensors
        wide = grads[0].index_select(0, token.flatten()).view(*token.shape, *grads[0].shape[1:])
        return torch.where(mask[..., None, None], wide, 0.0), None, None, None


def spread_queries(
    x: Float[Tensor, "M 1 H E"], turning: Turning | None, rows: RowPlaces
) -> Float[Tensor, "B T H E"]:
    """Queries in the padded layout, turned."""
    factors = None if turning is None else turning.of(0, 1)
    made: Tensor = _SpreadQueries.apply(x, factors, rows.token, rows.place)  # type: ignore[no-untyped-call]
    return made


def spread(
    x: Float[Tensor, "M P H E"], turning: Turning | None, rows: RowPlaces, *, queries: bool, copies: int
) -> Parts:
    """Queries, if they are there, keys and values in the padded layout; queries and keys turned.

    Each key has `copies` beside each other; the first has its value, the others have none.
    """
    factors = None if turning is None else turning.of(0 if queries else 1, x.shape[1])
    found: Parts = _SpreadParts.apply(x, factors, (rows.token, rows.place), (queries, copies))  # type: ignore[no-untyped-call]
    return found


def gather(x: Float[Tensor, "B T H E"], rows: RowPlaces) -> Float[Tensor, "M D"]:
    """What belongs to tokens of the padded layout, the heads of each beside each other."""
    made: Tensor = _Gather.apply(x, rows.place, rows.token, rows.mask)  # type: ignore[no-untyped-call]
    return made.flatten(1)
