"""Convert packed tokens to the padded layout of batched products and back, by one gather each way.

A row is the vector of one head of one token (E numbers). Padding repeats the last token of its row, so no
values have to be filled in. Padding keys are masked and padding queries are dropped; neither has a gradient.

Legend: M packed tokens, P parts (queries, keys, values), H heads of width E, B rows of T columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from trainables.layers.host import upload
from trainables.layers.packing import Packing, reorder, take

Table = TypeVar("Table", np.ndarray, Tensor)

MAX_HOST_INDICES = 1 << 17
"""Maximum number of indices computed on the host; beyond it uploading takes longer than computing them on the
device."""


@dataclass(frozen=True)
class HeadRows:
    """Indices that convert vectors of heads between the packed and the padded layout."""

    padded_to_packed: Int[Tensor, " P_B_H_T"]
    """For each row of the padded layout, its index in the packed layout."""
    packed_to_padded: Int[Tensor, " M_P_H"]
    """For each row of the packed layout, its index in the padded layout."""
    shape: tuple[int, ...]
    """Parts P, rows B, heads H and columns T."""

    @classmethod
    def of(cls, packing: Packing, heads: int, parts: int = 1) -> "HeadRows":
        """Return the indices for `packing`, computed once for all layers that use it."""
        head_rows: HeadRows = packing.get_cached(
            ("head rows", heads, parts), lambda: cls._build(packing, heads, parts)
        )
        return head_rows

    @classmethod
    def of_sorted_rows(cls, packing: Packing, heads: int) -> "HeadRows":
        """Return the indices with the longest rows first in the padded layout, if `sorts_rows(packing)`."""
        if not sorts_rows(packing):
            return cls.of(packing, heads)

        def build() -> HeadRows:
            rows, order = cls.of(packing, heads), length_order(packing)
            moves = (order.argsort() - torch.arange(packing.num_rows)) * (heads * packing.width)
            packed_to_padded = (
                rows.packed_to_padded.view(-1, heads) + moves.index_select(0, packing.row)[:, None]
            )
            padded_to_packed = rows.padded_to_packed.view(packing.num_rows, -1).index_select(0, order)
            return cls(padded_to_packed.flatten(), packed_to_padded.flatten(), rows.shape)

        head_rows: HeadRows = packing.get_cached(("sorted head rows", heads), build)
        return head_rows

    @classmethod
    def _build(cls, packing: Packing, heads: int, parts: int) -> "HeadRows":
        rows, width, device = packing.num_rows, packing.width, packing.row.device
        head, part = np.arange(heads), np.arange(parts)[:, None]
        shift, begin = (part * heads + head)[:, None, :, None], (part * (rows * heads) + head).ravel() * width
        shape = parts, rows, heads, width
        if packing.has_host_counts and rows * width * parts * heads <= MAX_HOST_INDICES:
            padded_to_packed, packed_to_padded = (
                upload(x, device) for x in _tables(*packing.host_places, shift, begin, shape)
            )
        else:
            places = packing.padded_index, packing.index
            padded_to_packed, packed_to_padded = _tables(
                *places, upload(shift, device), upload(begin, device), shape
            )
        return cls(padded_to_packed, packed_to_padded, shape)


def _tables(
    token: Table, place: Table, shift: Table, begin: Table, shape: tuple[int, ...]
) -> tuple[Table, Table]:
    """Return the two index tensors of `HeadRows`, given the indices of one part with one head.

    Args:
        token: Index of the token at each place of the padded form, (rows, columns).
        place: Place of each token in the flattened padded form.
        shift: Shift of indices for each part and head, in the packed layout.
        begin: Shift of indices for each part and head, in the padded layout.
        shape: Parts, rows, heads and columns.
    """
    parts, _, heads, width = shape
    packed_to_padded = place + place // width * ((heads - 1) * width)
    return (token[:, None] * (parts * heads) + shift).ravel(), (packed_to_padded[:, None] + begin).ravel()


def sorts_rows(packing: Packing) -> bool:
    """Return whether to process the longest rows first, as many at once as fit the cache.

    This avoids computation on padding. It is used on a CPU, where one more kernel costs little. The result
    for one packing never changes.
    """
    sorts: bool = packing.get_cached(
        "sorts rows", lambda: packing.has_host_counts and kernels_are_cheap(packing.row)
    )
    return sorts


def kernels_are_cheap(x: Tensor) -> bool:
    """Return whether launching a kernel on the device of `x` is cheap compared with reading its memory."""
    return not x.is_cuda


def length_order(packing: Packing) -> Int[Tensor, " B"]:
    """Return the indices of the rows, longest first."""
    order: Tensor = packing.get_cached(
        "by length", lambda: torch.from_numpy(np.argsort(-packing.host_counts, kind="stable"))
    )
    return order


WIDTH_STEP = 16


def round_up_width(length: int, width: int) -> int:
    """Return the padded width of a group of rows whose longest has this `length`; at most `width`.

    Widths are multiples of `WIDTH_STEP`, for which CPU kernels sum in the same order as on the full padded
    form.
    """
    return min(-(-length // WIDTH_STEP) * WIDTH_STEP, width)


def pad_heads(
    x: Float[Tensor, "M H E"], packing: Packing, longest_first: bool = False
) -> Float[Tensor, "B H T E"]:
    """Return rows of heads in the padded layout, contiguous; padding has no gradient.

    With `longest_first`, rows are sorted from the longest to the shortest if `sorts_rows(packing)`.
    """
    rows = HeadRows.of_sorted_rows(packing, x.shape[1]) if longest_first else HeadRows.of(packing, x.shape[1])
    return _padded(x, rows).squeeze(0)


def pad_head_parts(x: Float[Tensor, "M P H E"], packing: Packing) -> Float[Tensor, "P B H T E"]:
    """Return queries, keys and values (as far as `x` has them) in the padded layout."""
    return _padded(x, HeadRows.of(packing, x.shape[2], x.shape[1]))


def _padded(x: Float[Tensor, "*M E"], rows: HeadRows) -> Float[Tensor, "P B H T E"]:
    return reorder(x.reshape(-1, x.shape[-1]), rows.padded_to_packed, rows.packed_to_padded).view(
        *rows.shape, x.shape[-1]
    )


def unpad_heads(
    x: Float[Tensor, "B H T E"], packing: Packing, longest_first: bool = False
) -> Float[Tensor, "M H E"]:
    """Return the packed form of `x`, which `pad_heads` has brought into the padded layout."""
    rows = HeadRows.of_sorted_rows(packing, x.shape[1]) if longest_first else HeadRows.of(packing, x.shape[1])
    return take(x.reshape(-1, x.shape[-1]), rows.packed_to_padded).view(-1, x.shape[1], x.shape[-1])


@dataclass(frozen=True)
class RowPart:
    """Rows processed at once, with their maximum numbers of queries and keys (None: the full width)."""

    rows: slice
    heads: slice
    """The corresponding slice of the rows times heads axis."""
    queries: int | None = None
    keys: int | None = None

    def slice_queries(self, x: Shaped[Tensor, "N T E"]) -> Shaped[Tensor, "P Q E"]:
        """Return the slice of a tensor with an entry for each query."""
        return x if self.queries is None else x[self.heads, : self.queries]

    def slice_keys(self, x: Shaped[Tensor, "N K E"]) -> Shaped[Tensor, "P S E"]:
        """Return the slice of a tensor with an entry for each key."""
        return x if self.keys is None else x[self.heads, : self.keys]

    def slice_pairs(self, x: Shaped[Tensor, "B H T K"]) -> Shaped[Tensor, "R H Q S"]:
        """Return the slice of a tensor with an entry for each pair of query and key, or for each key."""
        return x if self.keys is None else x[self.rows, :, : self.queries, : self.keys]


ALL_ROWS = RowPart(slice(None), slice(None))


def can_skip_padding(queries: Packing, keys: Packing) -> bool:
    """Return whether padding can be skipped: `sorts_rows` holds for queries and for keys."""
    return sorts_rows(queries) and sorts_rows(keys)


def row_parts(queries: Packing, keys: Packing, heads: int, most_pairs: int) -> Iterator[RowPart]:
    """Yield groups of consecutive rows: at most `most_pairs` pairs of queries and keys, or a single row."""
    query_counts, key_counts = queries.host_counts.tolist(), keys.host_counts.tolist()
    counts = [
        (round_up_width(num_queries, queries.width), round_up_width(num_keys, keys.width))
        for num_queries, num_keys in zip(query_counts, key_counts, strict=True)
    ]
    begin, max_counts = 0, (0, 0)
    for row, (num_queries, num_keys) in enumerate(counts):
        wider_counts = max(max_counts[0], num_queries), max(max_counts[1], num_keys)
        if row > begin and (row + 1 - begin) * heads * wider_counts[0] * wider_counts[1] > most_pairs:
            yield RowPart(slice(begin, row), slice(begin * heads, row * heads), *max_counts)
            begin, wider_counts = row, (num_queries, num_keys)
        max_counts = wider_counts
    if counts:
        yield RowPart(slice(begin, len(counts)), slice(begin * heads, len(counts) * heads), *max_counts)
