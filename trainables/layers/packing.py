"""Ragged batches without padding: the real tokens of all rows, one after the other.

Position-wise layers run on packed tokens `M D`. Padding therefore costs nothing, and tokens or complete rows
can be removed from a batch by selection. Only attention and means need rows, and use `pad` and `unpad`.

Legend: M packed tokens, B rows, T width of the padded form.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from trainables.layers.constant_shapes import constant_shapes, refuse_host_read
from trainables.layers.host import Function, copy_to_host, upload


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
    """Rows of `x` in `order`; only those at `inverse_order`, one for each row of `x`, have a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse_order: Tensor) -> Tensor:
        ctx.save_for_backward(inverse_order)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (inverse_order,) = ctx.saved_tensors
        return grads[0].index_select(0, inverse_order), None, None


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


def take(x: Shaped[Tensor, "K ..."], index: Int[Tensor, " M"]) -> Shaped[Tensor, "M ..."]:
    """Return the rows of `x` at `index`, which must not contain repetitions."""
    if not x.requires_grad:
        return x.index_select(0, index)
    result: Tensor = _Take.run(x, index)
    return result


def reorder(
    x: Shaped[Tensor, "M ..."], order: Int[Tensor, " N"], inverse: Int[Tensor, " M"]
) -> Shaped[Tensor, "N ..."]:
    """Return the rows of `x` in `order`, which contains each of them, some perhaps repeatedly.

    `inverse` is the place of each row in the result; repetitions elsewhere have no gradient.
    """
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
class Packing:
    """Layout of M packed tokens in B rows."""

    row: Int[Tensor, " M"]
    """Row of each token, in non-descending order."""
    counts: Int[Tensor, " B"]
    """Number of tokens of each row."""
    width: int
    """Number of columns of the padded form; at least the largest count."""
    cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """Values cached by `get_cached`."""

    def get_cached(self, key: Any, make: Callable[[], Any]) -> Any:
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
        row = upload(np.repeat(np.arange(counts.shape[0]), counts), device)
        width = int(counts.max(initial=0)) if width is None else width
        return cls(row, upload(counts, device), width, {"counts": counts})

    @property
    def host_counts(self) -> Int[np.ndarray, " B"]:
        """`counts` on the host; the host waits for the device once if they are not available."""

        def read() -> np.ndarray:
            refuse_host_read("lengths")
            return np.asarray(self.counts.tolist(), dtype=np.int64)

        counts: np.ndarray = self.get_cached("counts", read)
        return counts

    @property
    def num_rows(self) -> int:
        """Number of rows B."""
        return self.counts.shape[0]

    @property
    def is_dense(self) -> bool:
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
    def has_host_counts(self) -> bool:
        """Whether the host knows the lengths."""
        return "counts" in self.cache

    @cached_property
    def starts(self) -> Int[Tensor, " B_1"]:
        """Index of the first token of each row, and the end of the last row."""
        return torch.nn.functional.pad(self.counts.cumsum(0), (1, 0))

    @cached_property
    def column(self) -> Int[Tensor, " M"]:
        """Column of each token in the padded form."""
        if self.has_host_counts:
            return upload(self.host_places[1] % self.width, self.row.device)
        order = torch.arange(self.row.shape[0], device=self.row.device)
        return order - self.starts.index_select(0, self.row)

    @cached_property
    def index(self) -> Int[Tensor, " M"]:
        """Index of each token in the flattened padded form."""
        if self.has_host_counts:
            return upload(self.host_places[1], self.row.device)
        return self.row * self.width + self.column

    @cached_property
    def padded_index(self) -> Int[Tensor, "B T"]:
        """Index of the packed token at each position of the padded form; at padding, the row's last token."""
        if self.has_host_counts:
            return upload(self.host_places[0], self.row.device)
        columns = torch.arange(self.width, device=self.row.device)
        last_columns = (self.counts - 1).clamp(min=0)[:, None]
        return (self.starts[:-1, None] + torch.minimum(columns, last_columns)).clamp(
            max=self.row.shape[0] - 1
        )

    @cached_property
    def host_places(self) -> tuple[Int[np.ndarray, "B T"], Int[np.ndarray, " M"]]:
        """`padded_index` and `index`, computed on the host, where many small operations take less time."""
        counts, columns = self.host_counts[:, None], np.arange(self.width)
        begins = np.cumsum(counts)[:, None] - counts
        padded_index = begins + np.minimum(columns, np.maximum(counts - 1, 0))
        index: np.ndarray = (columns < counts).ravel().nonzero()[0]
        return np.minimum(padded_index, self.row.shape[0] - 1), index

    @cached_property
    def mask(self) -> Bool[Tensor, "B T"]:
        """True where the padded form holds a token."""
        columns = torch.arange(self.width, device=self.row.device)
        return columns < self.counts[:, None]

    def pad(self, x: Shaped[Tensor, "M ..."]) -> Shaped[Tensor, "B T ..."]:
        """Return the padded form of packed `x`, zero at padding."""
        shape = (self.num_rows, self.width, *x.shape[1:])
        if self.is_dense:
            return x.reshape(shape)
        return put_rows(x, self.index, self.num_rows * self.width).reshape(shape)

    def unpad(self, x: Shaped[Tensor, "B T ..."]) -> Shaped[Tensor, "M ..."]:
        """Return the packed form of padded `x`."""
        flat = x.reshape(self.num_rows * self.width, *x.shape[2:])
        return flat if self.is_dense else take(flat, self.index)

    def repeat_per_token(self, x: Shaped[Tensor, "B ..."]) -> Shaped[Tensor, "M ..."]:
        """Repeat the value of each row for all its tokens; the gradient is a sum in fixed order."""
        if not x.requires_grad:
            return x.index_select(0, self.row)
        return self.unpad(x[:, None].expand(-1, self.width, *x.shape[1:]))

    def mean(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "B D"]:
        """Return the mean over the tokens of each row; rows must not be empty."""
        total = self.pad(x).sum(1)
        counts = self.get_cached(("counts", total.dtype), lambda: self.counts.to(total.dtype)[:, None])
        mean: Tensor = total / counts
        return mean

    def running_sum(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
        """Return the sum over the tokens of each row up to and including each token."""
        return self.unpad(self.pad(x).cumsum(1))

    def select(
        self, keep: Bool[Tensor, " M"] | Bool[np.ndarray, " M"]
    ) -> tuple[Int[Tensor, " K"], Int[np.ndarray, " R"], "Packing"]:
        """Return the remaining tokens, rows and packing when only the tokens in `keep` remain.

        The host waits for `keep` if it is a tensor, and for nothing else.

        Args:
            keep: Mask of the remaining tokens.

        Returns:
            Indices of these tokens, indices of the rows that have any, and their packing.
        """
        is_staying = copy_to_host(keep) if isinstance(keep, Tensor) else keep
        token_rows = np.repeat(np.arange(self.num_rows), self.host_counts)[is_staying]
        counts = np.bincount(token_rows, minlength=self.num_rows)
        rows, device = counts.nonzero()[0], self.row.device
        return upload(is_staying.nonzero()[0], device), rows, Packing.of_counts(counts[rows], device)


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
