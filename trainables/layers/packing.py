"""Ragged batches without padding: the real tokens of all rows, one after the other.

Position-wise layers run on packed tokens `M D`, so that padding costs nothing and tokens or whole rows can
leave a batch by plain selection. Only attention and means need rows, and use `pad` and `unpad`.

Legend: M packed tokens, B rows, T width of the padded form.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from trainables.layers.constant_shapes import constant_shapes, refuse_host_read
from trainables.layers.host import Function, on_host, uploaded


class _Take(Function):
    """`x[index]` for indices without repeats: the gradient is a copy, where indexing would add."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.size = x.shape[0]
        ctx.save_for_backward(index)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return put(grads[0], index, ctx.size), None


class _Moved(Function):
    """`x[out]` for an order `out` and its inverse `back`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return x.index_select(0, out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (back,) = ctx.saved_tensors
        return grads[0].index_select(0, back), None, None


class _Spread(Function):
    """Of each row its value at every token; the gradient is a sum over the padded form, in fixed order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packing: "Packing") -> Tensor:
        ctx.packing = packing
        return x.index_select(0, packing.row)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.packing.pad(grads[0]).sum(1), None


class _RowSums(Function):
    """Sums over the tokens of each row, by the padded form; every token has the gradient of its row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packing: "Packing") -> Tensor:
        ctx.packing = packing
        return packing.pad(x).sum(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0].index_select(0, ctx.packing.row), None


class _Put(Function):
    """Rows of `x` at `index` of a zero tensor, for indices without repeats."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(index)
        return x.new_zeros((size, *x.shape[1:])).index_copy_(0, index, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        return take(grads[0], index), None, None


class _CutInTwo(Function):
    """Rows of `x` in a new order, cut in two: the gradient of each part is copied to where it came from."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.sizes = sizes
        ctx.save_for_backward(order)
        one, other = x.index_select(0, order).split_with_sizes(ctx.sizes)
        return one, other

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        (order,) = ctx.saved_tensors
        given = [
            (grad, index)
            for grad, index in zip(grads, order.split_with_sizes(ctx.sizes), strict=True)
            if grad is not None
        ]
        if not given:
            return None, None, None
        like, shape = given[0][0], (order.shape[0], *given[0][0].shape[1:])
        whole = like.new_zeros(shape) if len(given) == 1 else like.new_empty(shape)
        for grad, index in given:
            whole.index_copy_(0, index, grad)
        return whole, None, None


def take(x: Shaped[Tensor, "K ..."], index: Int[Tensor, " M"]) -> Shaped[Tensor, "M ..."]:
    """Rows of `x` at `index`, in which nothing repeats."""
    if not x.requires_grad:
        return x.index_select(0, index)
    taken: Tensor = _Take.run(x, index)
    return taken


def moved(
    x: Shaped[Tensor, "M ..."], out: Int[Tensor, " N"], back: Int[Tensor, " M"]
) -> Shaped[Tensor, "N ..."]:
    """`x[out]`; the gradient of each vector is that of its place `back`."""
    found: Tensor = _Moved.run(x, out, back)
    return found


def put(x: Shaped[Tensor, "M ..."], index: Int[Tensor, " M"], size: int) -> Shaped[Tensor, "K ..."]:
    """`size` rows, `x` at `index`, in which nothing repeats, and zero elsewhere."""
    if not x.requires_grad:
        return x.new_zeros((size, *x.shape[1:])).index_copy_(0, index, x)
    # PyTorch's own gradient of a copy would keep `x`.
    placed: Tensor = _Put.run(x, index, size)
    return placed


@dataclass(frozen=True)
class InTwo:
    """How rows of tensors are cut in two, as the host knows."""

    order: Int[Tensor, " N"]
    """All of them, those of the first part before the others."""
    known: Bool[np.ndarray, " N"]
    """Which are in the first part."""

    @cached_property
    def sizes(self) -> list[int]:
        """Of both parts."""
        first = int(self.known.sum())
        return [first, self.known.shape[0] - first]

    @cached_property
    def others(self) -> Bool[np.ndarray, " N"]:
        """Which are in the second part."""
        found: np.ndarray = ~self.known
        return found

    @cached_property
    def one(self) -> Int[Tensor, " K"]:
        """Which are in the first part."""
        return self.order[: self.sizes[0]]

    def of(self, x: Any) -> tuple[Any, Any]:
        """Both parts of `x`: by one kernel of a tensor, by the host of what it knows."""
        if isinstance(x, np.ndarray):
            return x[self.known], x[self.others]
        if x.requires_grad:
            parts: tuple[Tensor, Tensor] = _CutInTwo.run(x, self.order, self.sizes)
            return parts
        one, other = x.index_select(0, self.order).split_with_sizes(self.sizes)
        return one, other


class RowPlaces(NamedTuple):
    """Places of packed tokens in the padded form of their rows, on the device."""

    token: Int[Tensor, "B T"]
    """Token at each place of the padded form; the row's last token in padding."""
    place: Int[Tensor, " M"]
    """Place of each token in the flattened padded form."""
    mask: Bool[Tensor, "B T"]
    """True where there is a token."""


@dataclass(frozen=True)
class Packing:
    """M packed tokens in B rows."""

    row: Int[Tensor, " M"]
    """Row of each token, never descending."""
    counts: Int[Tensor, " B"]
    """Tokens of each row."""
    width: int
    """Columns of the padded form; at least the largest count."""
    made: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What `once` has made."""

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` makes of this packing, the same for all layers that run on it."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    @classmethod
    def of_lengths(cls, lengths: Int[Tensor, " B"], width: int) -> "Packing":
        """Rows that hold their first `lengths` columns."""
        row = torch.repeat_interleave(lengths)
        return cls(row, lengths, width)

    @classmethod
    def of_counts(
        cls, counts: Int[np.ndarray, " B"], device: torch.device, width: int | None = None
    ) -> "Packing":
        """The same for lengths that the host knows; it does not wait. Columns: the most there are."""
        row = np.repeat(np.arange(counts.shape[0]), counts)
        both = uploaded(np.concatenate((row, counts)), device)
        made = cls(both[: row.shape[0]], both[row.shape[0] :], int(counts.max()) if width is None else width)
        made.made["host counts"] = counts
        return made

    @property
    def host_counts(self) -> Int[np.ndarray, " B"]:
        """`counts` for the host, which waits for them once, if it does not know them."""

        def read() -> np.ndarray:
            refuse_host_read("lengths")
            return np.asarray(self.counts.tolist(), dtype=np.int64)

        counts: np.ndarray = self.once("host counts", read)
        return counts

    @property
    def num_rows(self) -> int:
        """B."""
        return self.counts.shape[0]

    @property
    def dense(self) -> bool:
        """Whether the padded form holds no padding; known from shapes alone."""
        return self.row.shape[0] == self.num_rows * self.width

    @property
    def padded(self) -> bool:
        """Whether some of the packed tokens may be padding (`layers.chunking`)."""
        return False

    @property
    def ends(self) -> tuple[Int[Tensor, " B"], Int[Tensor, " B"]]:
        """Where the first and the last token of each row are among the packed ones."""
        return self.starts[:-1], self.starts[1:] - 1

    @property
    def by_host(self) -> bool:
        """Whether the host knows the lengths already, and makes places of them without any kernel."""
        return "host counts" in self.made

    @cached_property
    def starts(self) -> Int[Tensor, " B_1"]:
        """Where each row begins among the packed tokens, and the end of the last."""
        if self.by_host:
            return uploaded(np.concatenate(([0], np.cumsum(self.host_counts))), self.row.device)
        return torch.nn.functional.pad(self.counts.cumsum(0), (1, 0))

    @cached_property
    def column(self) -> Int[Tensor, " M"]:
        """Column of each token in the padded form."""
        if self.by_host:
            counts = self.host_counts
            starts = np.repeat(np.cumsum(counts) - counts, counts)
            return uploaded(np.arange(starts.shape[0]) - starts, self.row.device)
        order = torch.arange(self.row.shape[0], device=self.row.device)
        return order - self.starts.index_select(0, self.row)

    @cached_property
    def index(self) -> Int[Tensor, " M"]:
        """Place of each token in the flattened padded form."""
        return self.rows.place if self.by_host else self.row * self.width + self.column

    @cached_property
    def padded_index(self) -> Int[Tensor, "B T"]:
        """For each place of the padded form its token among the packed ones, in padding the row's last."""
        if self.by_host:
            return self.rows.token
        columns = torch.arange(self.width, device=self.row.device)
        last = (self.counts - 1).clamp(min=0)[:, None]
        return (self.starts[:-1, None] + torch.minimum(columns, last)).clamp(max=self.row.shape[0] - 1)

    @cached_property
    def mask(self) -> Bool[Tensor, "B T"]:
        """True where the padded form holds a token."""
        if self.by_host:
            return self.rows.mask
        columns = torch.arange(self.width, device=self.row.device)
        return columns < self.counts[:, None]

    @cached_property
    def host_rows(self) -> tuple[Int[np.ndarray, "B T"], Int[np.ndarray, " M"], Bool[np.ndarray, "B T"]]:
        """Where tokens are in the padded form, for the host, which waits for the lengths if it does not know
        them."""
        counts = self.host_counts
        starts, columns = np.cumsum(counts) - counts, np.arange(self.width)
        token = starts[:, None] + np.minimum(columns, np.maximum(counts - 1, 0)[:, None])
        mask = columns < counts[:, None]
        return np.minimum(token, self.row.shape[0] - 1), mask.ravel().nonzero()[0], mask

    @cached_property
    def rows(self) -> RowPlaces:
        """The tables of `host_rows` on the device."""
        return RowPlaces(*(uploaded(each, self.row.device) for each in self.host_rows))

    def pad(self, x: Shaped[Tensor, "M ..."]) -> Shaped[Tensor, "B T ..."]:
        """The padded form, zero where there is no token."""
        shape = (self.num_rows, self.width, *x.shape[1:])
        if self.dense:
            return x.reshape(shape)
        return put(x, self.index, self.num_rows * self.width).reshape(shape)

    def unpad(self, x: Shaped[Tensor, "B T ..."]) -> Shaped[Tensor, "M ..."]:
        """The packed form of padded `x`."""
        flat = x.reshape(self.num_rows * self.width, *x.shape[2:])
        return flat if self.dense else take(flat, self.index)

    def spread(self, x: Shaped[Tensor, "B ..."]) -> Shaped[Tensor, "M ..."]:
        """A row's value at each of its tokens; its gradient is a sum in fixed order."""
        if not x.requires_grad:
            return x.index_select(0, self.row)
        wide: Tensor = _Spread.run(x, self)
        return wide

    def mean(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "B D"]:
        """Mean over the tokens of each row; rows must not be empty."""
        total: Tensor = _RowSums.run(x, self)
        counts = self.once(("counts", total.dtype), lambda: self.counts.to(total.dtype)[:, None])
        mean: Tensor = total / counts
        return mean

    def running_sum(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
        """Sum over the tokens of each row up to and including each token."""
        return self.unpad(self.pad(x).cumsum(1))

    def select(
        self, keep: Bool[Tensor, " M"] | Bool[np.ndarray, " M"]
    ) -> tuple[Int[Tensor, " K"], Int[Tensor, " R"], "Packing"]:
        """Which tokens and rows are left, and how they are packed, when only tokens in `keep` stay.

        The host waits for `keep` if it does not know it, and for nothing else.
        """
        stays = on_host(keep) if isinstance(keep, Tensor) else keep
        rows, packing = self.left(stays)
        tokens = stays.nonzero()[0]
        both = uploaded(np.concatenate((tokens, rows)), self.row.device)
        return both[: tokens.shape[0]], both[tokens.shape[0] :], packing

    def left(self, stays: Bool[np.ndarray, " M"]) -> tuple[Int[np.ndarray, " R"], "Packing"]:
        """Which rows are left, and how tokens are packed, when only those that stay do."""
        begun = np.concatenate(([0], np.cumsum(stays)))
        ends = np.cumsum(self.host_counts)
        left = begun[ends] - begun[ends - self.host_counts]
        rows = left.nonzero()[0]
        return rows, Packing.of_counts(left[rows], self.row.device, None if rows.shape[0] else 0)


def packed(x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"]) -> tuple[Float[Tensor, "M D"], Packing]:
    """The real vectors of right-padded rows; longer padding changes nothing."""
    packing = packing_of(mask)
    return packing.unpad(x[:, : packing.width]), packing


def packing_of(mask: Bool[Tensor, "N S"], more: int = 0) -> Packing:
    """Of right-padded rows, each with `more` tokens than are in `mask`.

    With constant shapes the padded form is as wide as `mask`, and lengths stay on the device.
    """
    if (shapes := constant_shapes()) is not None:
        counts = mask.sum(1) + more
        row = torch.repeat_interleave(counts, output_size=shapes.count(counts))
        return Packing(row, counts, mask.shape[1] + more)
    lengths = np.asarray(mask.sum(1).tolist(), dtype=np.int64)  # for which the host waits
    return Packing.of_counts(lengths + more, mask.device)
