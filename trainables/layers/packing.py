"""Ragged batches without padding: the real tokens of all rows, one after the other.

Position-wise layers run on packed tokens `M D`. Padding therefore costs nothing, and tokens or complete rows
can be removed from a batch by selection. Only attention and means need rows, and use `pad` and `unpad`.

Legend: M packed tokens, B rows, T width of the padded form.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from trainables.layers.constant_shapes import constant_shapes, refuse_host_read
from trainables.layers.host import Function, copy_to_host, upload_together


class _Take(Function):
    """`x[index]` for an `index` without repetitions, so that its gradient is a copy instead of a sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.size = x.shape[0]
        ctx.save_for_backward(index)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return put_rows(grads[0], index, ctx.size), None


class _Reorder(Function):
    """`x[out]` for a permutation `out` and its inverse `back`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse_order: Tensor) -> Tensor:
        ctx.save_for_backward(inverse_order)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (inverse_order,) = ctx.saved_tensors
        return grads[0].index_select(0, inverse_order), None, None


class _Spread(Function):
    """Repeat the value of each row for its tokens; the gradient sums over the padded form in fixed order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packing: "Packing") -> Tensor:
        ctx.packing = packing
        return x.index_select(0, packing.row)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.packing.pad(grads[0]).sum(1), None


class _RowSums(Function):
    """Sums over the tokens of each row, in the padded form; tokens get the gradient of their row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packing: "Packing") -> Tensor:
        ctx.packing = packing
        return packing.pad(x).sum(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0].index_select(0, ctx.packing.row), None


class _Put(Function):
    """Write the rows of `x` to the rows `index` of a zero tensor; `index` must not contain repetitions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(index)
        return x.new_zeros((size, *x.shape[1:])).index_copy_(0, index, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        return take(grads[0], index), None, None


class _CutInTwo(Function):
    """Reorder the rows of `x` and split them in two; each part's gradient is copied back to its rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.sizes = sizes
        ctx.save_for_backward(order)
        first, second = x.index_select(0, order).split_with_sizes(ctx.sizes)
        return first, second

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        (order,) = ctx.saved_tensors
        grads_with_rows = [
            (grad, index)
            for grad, index in zip(grads, order.split_with_sizes(ctx.sizes), strict=True)
            if grad is not None
        ]
        if not grads_with_rows:
            return None, None, None
        example, shape = grads_with_rows[0][0], (order.shape[0], *grads_with_rows[0][0].shape[1:])
        grad_x = example.new_zeros(shape) if len(grads_with_rows) == 1 else example.new_empty(shape)
        for grad, index in grads_with_rows:
            grad_x.index_copy_(0, index, grad)
        return grad_x, None, None


def take(x: Shaped[Tensor, "K ..."], index: Int[Tensor, " M"]) -> Shaped[Tensor, "M ..."]:
    """Return the rows of `x` at `index`, which must not contain repetitions."""
    if not x.requires_grad:
        return x.index_select(0, index)
    result: Tensor = _Take.run(x, index)
    return result


def reorder(
    x: Shaped[Tensor, "M ..."], order: Int[Tensor, " N"], inverse: Int[Tensor, " M"]
) -> Shaped[Tensor, "N ..."]:
    """Return `x[out]`; `inverse` is the inverse permutation, used for the gradient."""
    result: Tensor = _Reorder.run(x, order, inverse)
    return result


def put_rows(x: Shaped[Tensor, "M ..."], index: Int[Tensor, " M"], size: int) -> Shaped[Tensor, "K ..."]:
    """Return `size` rows: the rows of `x` at `index` (without repetitions), zero at all other indices."""
    if not x.requires_grad:
        return x.new_zeros((size, *x.shape[1:])).index_copy_(0, index, x)
    # The gradient of PyTorch's own copy would keep `x` in memory.
    result: Tensor = _Put.run(x, index, size)
    return result


@dataclass(frozen=True)
class SplitInTwo:
    """A split of rows of tensors in two parts, available on the host."""

    order: Int[Tensor, " N"]
    """Indices of all rows, those of the first part before those of the second."""
    known: Bool[np.ndarray, " N"]
    """Mask of the rows of the first part, on the host."""

    @cached_property
    def sizes(self) -> list[int]:
        """Sizes of both parts."""
        num_first = int(self.known.sum())
        return [num_first, self.known.shape[0] - num_first]

    @cached_property
    def is_second(self) -> Bool[np.ndarray, " N"]:
        """Mask of the rows that belong to the second part, on the host."""
        is_second: np.ndarray = ~self.known
        return is_second

    @cached_property
    def first_indices(self) -> Int[Tensor, " K"]:
        """Indices of the rows that belong to the first part, on the device."""
        return self.order[: self.sizes[0]]

    def of(self, x: Any) -> tuple[Any, Any]:
        """Split `x`, a tensor (by one kernel) or an array on the host, into both parts."""
        if isinstance(x, np.ndarray):
            return x[self.known], x[self.is_second]
        if x.requires_grad:
            parts: tuple[Tensor, Tensor] = _CutInTwo.run(x, self.order, self.sizes)
            return parts
        first, second = x.index_select(0, self.order).split_with_sizes(self.sizes)
        return first, second


@dataclass(frozen=True)
class HostLayout:
    """Lengths of the rows of a packing, on the host, and tables that follow from them."""

    counts: Int[np.ndarray, " B"]
    width: int

    @cached_property
    def row(self) -> Int[np.ndarray, " M"]:
        """Row of each token."""
        return np.repeat(np.arange(self.counts.shape[0]), self.counts)

    @cached_property
    def starts(self) -> Int[np.ndarray, " B_1"]:
        """Index of the first token of each row, and the end of the last row."""
        return np.concatenate(([0], np.cumsum(self.counts)))

    @property
    def column(self) -> Int[np.ndarray, " M"]:
        """Column of each token."""
        column: np.ndarray = np.arange(self.row.shape[0]) - np.repeat(self.starts[:-1], self.counts)
        return column

    @cached_property
    def places(self) -> tuple[Int[np.ndarray, " B_T"], Int[np.ndarray, " M"]]:
        """Tables that convert between packed tokens and the padded form.

        The first holds the token at each place of the flattened padded form: the last token of the row at
        padding. The second holds the place of each token in that form.
        """
        columns, counts, row_starts = np.arange(self.width), self.counts[:, None], self.starts[:-1, None]
        token = row_starts + np.minimum(columns, np.maximum(counts - 1, 0))
        place: np.ndarray = (columns < counts).ravel().nonzero()[0]
        return np.minimum(token, self.row.shape[0] - 1).ravel(), place


class PackingGroup:
    """Layouts of several packings. A table of all of them is uploaded when the first packing needs it."""

    def __init__(self, layouts: Sequence[HostLayout], device: torch.device) -> None:
        self.layouts = layouts
        self.device = device
        self._tables: dict[Any, list[list[Tensor]]] = {}

    def tables(
        self, key: Any, number: int, make: Callable[[HostLayout], Sequence[np.ndarray]]
    ) -> list[Tensor]:
        """Return the tables that `make` builds for layout `number`, on the device, cached under `key`."""
        if key not in self._tables:
            tables = [make(layout) for layout in self.layouts]
            parts = iter(
                upload_together([table for layout_tables in tables for table in layout_tables], self.device)
            )
            self._tables[key] = [list(islice(parts, len(layout_tables))) for layout_tables in tables]
        return self._tables[key][number]


@dataclass(frozen=True)
class Packing:
    """Layout of M packed tokens in B rows."""

    row: Int[Tensor, " M"]
    """Row of each token, in non-descending order."""
    counts: Int[Tensor, " B"]
    """Number of tokens of each row."""
    width: int
    """Number of columns of the padded form; at least the largest count."""
    cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """Values cached by `once`."""

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the result of `make()`, cached under `key` for all layers that run on this packing."""
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]

    @classmethod
    def of_lengths(cls, lengths: Int[Tensor, " B"], width: int) -> "Packing":
        """Build the packing of rows that hold their first `lengths` columns."""
        row = torch.repeat_interleave(lengths)
        return cls(row, lengths, width)

    @classmethod
    def of_counts(
        cls, counts: Int[np.ndarray, " B"], device: torch.device, width: int | None = None
    ) -> "Packing":
        """Build the packing from lengths on the host, without waiting for the device.

        `width` defaults to the largest count.
        """
        return cls.of_all([HostLayout(counts, int(counts.max()) if width is None else width)], device)[0]

    @classmethod
    def of_all(cls, layouts: Sequence[HostLayout], device: torch.device) -> "list[Packing]":
        """Build packings that upload their tables together."""
        parts = upload_together(
            [table for layout in layouts for table in (layout.row, layout.counts)], device
        )
        return cls.of_tables(layouts, parts[::2], parts[1::2])

    @classmethod
    def of_tables(
        cls, layouts: Sequence[HostLayout], rows: Sequence[Tensor], counts: Sequence[Tensor]
    ) -> "list[Packing]":
        """Build one packing per layout, given its `row` and `counts`; they upload further tables together."""
        group = PackingGroup(layouts, rows[0].device)
        return [
            cls(row, count, layout.width, {"group": (group, number)})
            for number, (layout, row, count) in enumerate(zip(layouts, rows, counts, strict=True))
        ]

    @property
    def host_counts(self) -> Int[np.ndarray, " B"]:
        """`counts` on the host; the host waits for the device once if they are not available."""
        return self.host_layout.counts

    @property
    def host_layout(self) -> HostLayout:
        """Lengths of the rows on the host; the host waits for the device once if they are not available."""
        group, number = self._place_in_group
        return group.layouts[number]

    @property
    def _place_in_group(self) -> tuple[PackingGroup, int]:
        def find_place() -> tuple[PackingGroup, int]:
            refuse_host_read("lengths")
            layout = HostLayout(np.asarray(self.counts.tolist(), dtype=np.int64), self.width)
            return PackingGroup([layout], self.row.device), 0

        place: tuple[PackingGroup, int] = self.once("group", find_place)
        return place

    def host_tables(self, key: Any, make: Callable[[HostLayout], Sequence[np.ndarray]]) -> list[Tensor]:
        """Return the tables that `make` builds from the lengths, on the device, cached under `key`.

        Tables of packings that were built together are uploaded together.
        """
        group, number = self._place_in_group
        return group.tables(key, number, make)

    @property
    def num_rows(self) -> int:
        """Number of rows B."""
        return self.counts.shape[0]

    @property
    def dense(self) -> bool:
        """Whether the padded form has no padding, as determined from shapes alone."""
        return self.row.shape[0] == self.num_rows * self.width

    @property
    def padded(self) -> bool:
        """Whether some of the packed tokens may be padding (`layers.chunking`)."""
        return False

    @property
    def ends(self) -> tuple[Int[Tensor, " B"], Int[Tensor, " B"]]:
        """Indices of the first and the last token of each row among the packed tokens."""
        return self.starts[:-1], self.starts[1:] - 1

    @property
    def by_host(self) -> bool:
        """Whether the host knows the lengths, so that it can compute places without a kernel."""
        return "group" in self.cache

    @cached_property
    def starts(self) -> Int[Tensor, " B_1"]:
        """Index of the first token of each row, and the end of the last row."""
        if self.by_host:
            return self.host_tables("starts", lambda layout: [layout.starts])[0]
        return torch.nn.functional.pad(self.counts.cumsum(0), (1, 0))

    @cached_property
    def column(self) -> Int[Tensor, " M"]:
        """Column of each token in the padded form."""
        if self.by_host:
            return self.host_tables("column", lambda layout: [layout.column])[0]
        order = torch.arange(self.row.shape[0], device=self.row.device)
        return order - self.starts.index_select(0, self.row)

    @cached_property
    def index(self) -> Int[Tensor, " M"]:
        """Index of each token in the flattened padded form."""
        if self.by_host:
            return self.host_tables("places", lambda layout: layout.places)[1]
        return self.row * self.width + self.column

    @cached_property
    def padded_index(self) -> Int[Tensor, "B T"]:
        """Index of the packed token at each position of the padded form; at padding, the row's last token."""
        if self.by_host:
            token = self.host_tables("places", lambda layout: layout.places)[0]
            return token.view(self.num_rows, self.width)
        columns = torch.arange(self.width, device=self.row.device)
        last_columns = (self.counts - 1).clamp(min=0)[:, None]
        return (self.starts[:-1, None] + torch.minimum(columns, last_columns)).clamp(
            max=self.row.shape[0] - 1
        )

    @cached_property
    def mask(self) -> Bool[Tensor, "B T"]:
        """True where the padded form holds a token."""
        columns = torch.arange(self.width, device=self.row.device)
        return columns < self.counts[:, None]

    def pad(self, x: Shaped[Tensor, "M ..."]) -> Shaped[Tensor, "B T ..."]:
        """Return the padded form of packed `x`, zero at padding."""
        shape = (self.num_rows, self.width, *x.shape[1:])
        if self.dense:
            return x.reshape(shape)
        return put_rows(x, self.index, self.num_rows * self.width).reshape(shape)

    def unpad(self, x: Shaped[Tensor, "B T ..."]) -> Shaped[Tensor, "M ..."]:
        """Return the packed form of padded `x`."""
        flat = x.reshape(self.num_rows * self.width, *x.shape[2:])
        return flat if self.dense else take(flat, self.index)

    def spread(self, x: Shaped[Tensor, "B ..."]) -> Shaped[Tensor, "M ..."]:
        """Repeat the value of each row for all its tokens; the gradient is a sum in fixed order."""
        if not x.requires_grad:
            return x.index_select(0, self.row)
        wide: Tensor = _Spread.run(x, self)
        return wide

    def mean(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "B D"]:
        """Return the mean over the tokens of each row; rows must not be empty."""
        total: Tensor = _RowSums.run(x, self)
        counts = self.once(("counts", total.dtype), lambda: self.counts.to(total.dtype)[:, None])
        mean: Tensor = total / counts
        return mean

    def running_sum(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
        """Return the sum over the tokens of each row up to and including each token."""
        return self.unpad(self.pad(x).cumsum(1))

    def select(
        self, keep: Bool[Tensor, " M"] | Bool[np.ndarray, " M"]
    ) -> tuple[Int[Tensor, " K"], Int[Tensor, " R"], "Packing"]:
        """Return the remaining tokens, rows and packing when only the tokens in `keep` remain.

        The host waits for `keep` if it is a tensor, and for nothing else.

        Args:
            keep: Mask of the remaining tokens.

        Returns:
            Indices of these tokens, indices of the rows that have any, and their packing.
        """
        is_staying = copy_to_host(keep) if isinstance(keep, Tensor) else keep
        return self.select_each([is_staying])[0]

    def select_each(
        self, keep_masks: Sequence[Bool[np.ndarray, " M"]]
    ) -> "list[tuple[Int[Tensor, ' K'], Int[Tensor, ' R'], Packing]]":
        """Return the results of `select` for several masks; their tables are uploaded together."""
        parts = [(is_staying.nonzero()[0], *self.remaining_rows(is_staying)) for is_staying in keep_masks]
        tables = [
            table for tokens, rows, layout in parts for table in (tokens, rows, layout.row, layout.counts)
        ]
        uploads = upload_together(tables, self.row.device)
        packings = Packing.of_tables([layout for *_, layout in parts], uploads[2::4], uploads[3::4])
        return list(zip(uploads[::4], uploads[1::4], packings, strict=True))

    def remaining_rows(self, is_staying: Bool[np.ndarray, " M"]) -> tuple[Int[np.ndarray, " R"], HostLayout]:
        """Return the rows with tokens in `is_staying`, and the layout of only these tokens."""
        staying_before = np.concatenate(([0], np.cumsum(is_staying)))
        row_ends = np.cumsum(self.host_counts)
        num_staying = staying_before[row_ends] - staying_before[row_ends - self.host_counts]
        rows = num_staying.nonzero()[0]
        return rows, HostLayout(num_staying[rows], int(num_staying.max()) if rows.shape[0] else 0)


def pack(x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"]) -> tuple[Float[Tensor, "M D"], Packing]:
    """Return the real vectors of right-padded rows and their packing; extra padding has no effect."""
    packing = packing_of(mask)
    return packing.unpad(x[:, : packing.width]), packing


def packing_of(mask: Bool[Tensor, "N S"], additional: int = 0) -> Packing:
    """Return the packing of right-padded rows; each row has `additional` tokens more than `mask`.

    With constant shapes the padded form is as wide as `mask`, and lengths stay on the device.
    """
    if (shapes := constant_shapes()) is not None:
        counts = mask.sum(1) + additional
        row = torch.repeat_interleave(counts, output_size=shapes.count(counts))
        return Packing(row, counts, mask.shape[1] + additional)
    lengths = np.asarray(mask.sum(1).tolist(), dtype=np.int64)  # the host waits for the device
    return Packing.of_counts(lengths + additional, mask.device)
