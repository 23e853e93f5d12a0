"""Convert packed tokens to the padded layout of batched products and back, by one gather each way.

A row is the vector of one head of one token (E numbers). Padding repeats the last token of its row, so no
values have to be filled in. Padding keys are masked and padding queries are dropped; neither has a gradient.

Legend: M packed tokens, P parts (queries, keys, values), H heads of width E, B rows of T columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Complex, Float, Int, Shaped
from torch import Tensor

from trainables.layers.host import Function, upload, upload_together
from trainables.layers.packing import HostLayout, Packing

Factor = Complex[Tensor, "R B 1 T half"]
"""Complex factors of the first R parts; consecutive pairs of numbers are read as complex numbers."""


MAX_HOST_INDICES = 1 << 17
"""Maximum number of indices computed on the host; beyond it uploading takes longer than computing them on the
device."""


@dataclass(frozen=True)
class HeadRows:
    """Indices that convert vectors of heads between the packed and the padded layout."""

    out: Int[Tensor, " P_B_H_T"]
    """For each row of the padded layout, its index in the packed layout."""
    back: Int[Tensor, " M_P_H"]
    """For each row of the packed layout, its index in the padded layout."""
    shape: tuple[int, ...]
    """Parts P, rows B, heads H and columns T."""

    @classmethod
    def of(cls, packing: Packing, heads: int, parts: int = 1) -> "HeadRows":
        """Return the indices for `packing`, computed once for all layers that use it."""
        found: HeadRows = packing.once(("head rows", heads, parts), lambda: cls._build(packing, heads, parts))
        return found

    @classmethod
    def sorted(cls, packing: Packing, heads: int) -> "HeadRows":
        """Return the indices with the longest rows first in the padded layout, if `sorts_rows(packing)`."""
        if not sorts_rows(packing):
            return cls.of(packing, heads)

        def build() -> HeadRows:
            rows, order = cls.of(packing, heads), length_order(packing)
            moves = (order.argsort() - torch.arange(packing.num_rows)) * (heads * packing.width)
            back = rows.back.view(-1, heads) + moves.index_select(0, packing.row)[:, None]
            out = rows.out.view(packing.num_rows, -1).index_select(0, order)
            return cls(out.flatten(), back.flatten(), rows.shape)

        found: HeadRows = packing.once(("sorted head rows", heads), build)
        return found

    @classmethod
    def _build(cls, packing: Packing, heads: int, parts: int) -> "HeadRows":
        rows, width, device = packing.num_rows, packing.width, packing.row.device
        shape = (parts, rows, heads, width)
        if (packing.by_host or packing.dense) and rows * width * parts * heads <= MAX_HOST_INDICES:
            key = "head rows", heads, parts

            def tables(layout: HostLayout) -> tuple[np.ndarray, ...]:
                return _host_tables(layout, heads, parts)

            if packing.by_host:
                out, back = packing.host_tables(key, tables)
            else:
                out, back = upload_together(tables(HostLayout(np.full(rows, width), width)), device)
            return cls(out, back, shape)
        number, begin = _offsets(rows, width, heads, parts)
        out = packing.padded_index[:, None] * (parts * heads) + upload(number, device)[:, None, :, None]
        back = packing.index + packing.row * ((heads - 1) * width)
        return cls(out.flatten(), (back[:, None] + upload(begin, device)).flatten(), shape)


def _offsets(rows: int, width: int, heads: int, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the shift of indices for each part and head, in the packed and in the padded layout."""
    head, part = np.arange(heads), np.arange(parts)[:, None]
    return part * heads + head, (part * (rows * heads) + head).ravel() * width


def _host_tables(layout: HostLayout, heads: int, parts: int) -> tuple[np.ndarray, ...]:
    """Return `HeadRows.out` and `HeadRows.back`, computed on the host."""
    rows, width = layout.counts.shape[0], layout.width
    number, begin = _offsets(rows, width, heads, parts)
    token, place = layout.places
    targets = token.reshape(rows, 1, width) * (parts * heads) + number[:, None, :, None]
    base = place + layout.row * ((heads - 1) * width)
    return targets.ravel(), (base[:, None] + begin).ravel()


def sorts_rows(packing: Packing) -> bool:
    """Return whether to process the longest rows first, as many at once as fit the cache.

    This avoids computation on padding. It is used on a CPU, where one more kernel costs little. The result
    for one packing never changes.
    """
    sorts: bool = packing.once("sorts rows", lambda: packing.by_host and kernels_are_cheap(packing.row))
    return sorts


def kernels_are_cheap(x: Tensor) -> bool:
    """Return whether launching a kernel on the device of `x` is cheap compared with reading its memory."""
    return not x.is_cuda


def length_order(packing: Packing) -> Int[Tensor, " B"]:
    """Return the indices of the rows, longest first."""
    found: Tensor = packing.once(
        "by length", lambda: torch.from_numpy(np.argsort(-packing.host_counts, kind="stable"))
    )
    return found


WIDTH_STEP = 16


def round_up_width(length: int, width: int) -> int:
    """Return the padded width of a group of rows whose longest has this `length`; at most `width`.

    Widths are multiples of `WIDTH_STEP`, for which CPU kernels sum in the same order as on the full padded
    form.
    """
    return min(-(-length // WIDTH_STEP) * WIDTH_STEP, width)


class _SpreadHeads(Function):
    """The padded layout of packed rows, with the first parts multiplied by complex factors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: HeadRows, factors: tuple[Tensor, Tensor] | None) -> Tensor:
        ctx.rows, ctx.factors, ctx.shape = rows, factors, x.shape
        return to_padded(x, rows, None if factors is None else factors[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = grads
        if ctx.factors is not None:
            grad = rotate_in_place(grad.clone(memory_format=torch.contiguous_format), ctx.factors[1])
        return grad.reshape(-1, grad.shape[-1]).index_select(0, ctx.rows.back).view(ctx.shape), None, None


def to_padded(x: Float[Tensor, "*M E"], rows: HeadRows, factor: Factor | None) -> Float[Tensor, "P B H T E"]:
    """Return packed rows in the padded layout, times `factor`; autograd does not record this."""
    width = x.shape[-1]
    head_columns = x.reshape(-1, width).index_select(0, rows.out).view(*rows.shape, width)
    return head_columns if factor is None else rotate_in_place(head_columns, factor)


def rotate_in_place(x: Float[Tensor, "P B H T E"], factor: Factor) -> Tensor:
    """Multiply the first parts of `x`, one for each entry of `factor`, in place and return `x`."""
    part = x[: factor.shape[0]]
    dtype = factor.dtype.to_real()
    exact = part if part.dtype == dtype else part.to(dtype)
    torch.view_as_complex(exact.view(*exact.shape[:-1], -1, 2)).mul_(factor)
    if exact is not part:
        part.copy_(exact)
    return x


class _GatherHeads(Function):
    """The packed rows of the padded layout; padding has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: HeadRows) -> Tensor:
        ctx.rows, ctx.shape = rows, x.shape
        return x.reshape(-1, x.shape[-1]).index_select(0, rows.back)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return gradient_to_padded(grads[0], ctx.rows).view(ctx.shape), None


def gradient_to_padded(x: Float[Tensor, "*M E"], rows: HeadRows) -> Float[Tensor, "P_B_H_T E"]:
    """Return a gradient of packed rows in the padded layout, zero at padding, not recorded by autograd."""
    width, (places, real) = x.shape[-1], (rows.out.shape[0], rows.back.shape[0])
    x = x.reshape(real, width)
    if places == real:
        return x.index_select(0, rows.out)  # no padding
    return x.new_zeros((places, width)).index_copy_(0, rows.back, x)


def spread(
    x: Float[Tensor, "M H E"],
    packing: Packing,
    longest_first: bool = False,
) -> Float[Tensor, "B H T E"]:
    """Return rows of heads in the padded layout, contiguous.

    With `longest_first`, rows are sorted from the longest to the shortest if `sorts_rows(packing)`.
    """
    rows = HeadRows.sorted(packing, x.shape[1]) if longest_first else HeadRows.of(packing, x.shape[1])
    head_columns: Tensor = _SpreadHeads.run(x, rows, None)
    return head_columns.squeeze(0)


def spread_parts(
    x: Float[Tensor, "M P H E"],
    packing: Packing,
    factors: tuple[Factor, Factor] | None = None,
) -> Float[Tensor, "P B H T E"]:
    """Return queries, keys and values (as far as `x` has them) in the padded layout, times `factors[0]`.

    The second of `factors` is the conjugate, for the backward pass.
    """
    rows = HeadRows.of(packing, x.shape[2], x.shape[1])
    head_columns: Tensor = _SpreadHeads.run(x, rows, factors)
    return head_columns


def spread_each(
    x: Float[Tensor, "M P H E"], packing: Packing, factors: tuple[Factor, Factor] | None = None
) -> tuple[Float[Tensor, "B H T E"], ...]:
    """Return the result of `spread_parts`, split into parts."""
    return spread_parts(x, packing, factors).unbind(0)


def gather(
    x: Float[Tensor, "B H T E"],
    packing: Packing,
    longest_first: bool = False,
) -> Float[Tensor, "M H E"]:
    """Return the packed form of `x`, which `spread` has brought into the padded layout."""
    rows = HeadRows.sorted(packing, x.shape[1]) if longest_first else HeadRows.of(packing, x.shape[1])
    token_rows: Tensor = _GatherHeads.run(x, rows)
    return token_rows.view(-1, *x.shape[1:2], x.shape[-1])


@dataclass(frozen=True)
class RowPart:
    """Rows processed at once, with their maximum numbers of queries and keys (None: the full width)."""

    rows: slice
    heads: slice
    """The corresponding slice of the rows times heads axis."""
    queries: int | None = None
    keys: int | None = None

    def of_queries(self, x: Shaped[Tensor, "N T E"]) -> Shaped[Tensor, "P Q E"]:
        """Return the slice of a tensor with an entry for each query."""
        return x if self.queries is None else x[self.heads, : self.queries]

    def of_keys(self, x: Shaped[Tensor, "N K E"]) -> Shaped[Tensor, "P S E"]:
        """Return the slice of a tensor with an entry for each key."""
        return x if self.keys is None else x[self.heads, : self.keys]

    def of_pairs(self, x: Shaped[Tensor, "B H T K"]) -> Shaped[Tensor, "R H Q S"]:
        """Return the slice of a tensor with an entry for each pair of query and key, or for each key."""
        return x if self.keys is None else x[self.rows, :, : self.queries, : self.keys]


WHOLE = RowPart(slice(None), slice(None))


def can_leave_padding(queries: Packing, keys: Packing) -> bool:
    """Return whether padding can be skipped: `sorts_rows` holds for queries and for keys."""
    return sorts_rows(queries) and sorts_rows(keys)


def row_parts(queries: Packing, keys: Packing, heads: int, most_pairs: int) -> Iterator[RowPart]:
    """Yield groups of consecutive rows: at most `most_pairs` pairs of queries and keys, or a single row."""
    asks, sees = queries.host_counts.tolist(), keys.host_counts.tolist()
    counts = [
        (round_up_width(ask, queries.width), round_up_width(see, keys.width))
        for ask, see in zip(asks, sees, strict=True)
    ]
    begin, most = 0, (0, 0)
    for row, (ask, see) in enumerate(counts):
        wider = max(most[0], ask), max(most[1], see)
        if row > begin and (row + 1 - begin) * heads * wider[0] * wider[1] > most_pairs:
            yield RowPart(slice(begin, row), slice(begin * heads, row * heads), *most)
            begin, wider = row, (ask, see)
        most = wider
    if counts:
        yield RowPart(slice(begin, len(counts)), slice(begin * heads, len(counts) * heads), *most)
