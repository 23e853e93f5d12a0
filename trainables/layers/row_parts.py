"""Rows of attention that a CPU works on at once: few enough to stay in its cache, and little padding.

Most of the time of a pass over many weights is that of memory, much of it new to the process, and a kernel
more costs little there.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from jaxtyping import Shaped
from torch import Tensor

from trainables.layers.head_rows import sorts_rows, stepped
from trainables.layers.packing import Packing


@dataclass(frozen=True)
class RowPart:
    """Rows that are worked on at once, and their most queries and keys; all where these are None."""

    rows: slice
    heads: slice
    """Their heads among those of all rows."""
    queries: int | None = None
    keys: int | None = None

    def of_queries(self, x: Shaped[Tensor, "N T E"]) -> Shaped[Tensor, "P Q E"]:
        """What all rows have for each query."""
        return x if self.queries is None else x[self.heads, : self.queries]

    def of_keys(self, x: Shaped[Tensor, "N K E"]) -> Shaped[Tensor, "P S E"]:
        """What all rows have for each key."""
        return x if self.keys is None else x[self.heads, : self.keys]

    def of_pairs(self, x: Shaped[Tensor, "B H T K"]) -> Shaped[Tensor, "R H Q S"]:
        """What all rows have for each pair, or for each key."""
        return x if self.keys is None else x[self.rows, :, : self.queries, : self.keys]


WHOLE = RowPart(slice(None), slice(None))


def can_leave_padding(queries: Packing, keys: Packing) -> bool:
    """Whether the host knows lengths, and kernels cost little."""
    return sorts_rows(queries) and sorts_rows(keys)


def row_parts(queries: Packing, keys: Packing, heads: int, most_pairs: int) -> Iterator[RowPart]:
    """Rows one after the other, as long as they are at most so many pairs of queries and keys."""
    asks, sees = queries.host_counts.tolist(), keys.host_counts.tolist()
    counts = [
        (stepped(ask, queries.width), stepped(see, keys.width)) for ask, see in zip(asks, sees, strict=True)
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
