"""How sequences are cut into chunks. Each by its own length, so that a chunk never depends on padding.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Alg. 2 (k is the
number of chunks, from the chunk size g) and s. 6.6 (k fixed). Their runs cut a sequence of n tokens into
k = ceil(n / g) chunks of ceil(n / k) tokens, so that chunks of size 100 hold 86 tokens at n = 512. On some
tasks they count positions from the start of the sequence and not of the chunk: xPos knows only differences,
and tokens attend to no other chunk, so that the choice does not matter.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from trainables.layers.host import uploaded
from trainables.layers.packing import Packing
from trainables.layers.positions import rotations
from trainables.layers.tokens import Tokens, packed_places
from trainables.settings import Settings, Small

Number = TypeVar("Number", int, np.ndarray, Tensor)


class ChunkSettings(Settings):
    """Where one chunk ends and the next begins."""

    by: Literal["size", "count"] = "size"
    """Chunks of a fixed size (size), or a fixed number of chunks (count)."""
    size: Annotated[int, Small(4)] = Field(default=20, ge=1)
    """Most tokens in a chunk, where cut by size."""
    count: Annotated[int, Small(3)] = Field(default=5, ge=1)
    """Most chunks in a sequence, where cut by count; short sequences have one token a chunk."""
    even: bool | None = None
    """Where cut by size: chunks of one sequence are as long as each other (true, as published), or full but
    for the last (false). Not given: even, but full in a causal model, where no token may know how many
    follow."""

    def is_even(self, *, causal: bool) -> bool:
        """Whether chunks that are cut by size are as long as each other."""
        return not causal if self.even is None else self.even

    def length(self, total: Number, *, causal: bool) -> Number:
        """Tokens in each chunk of a sequence of `total` tokens, but for the last."""
        if self.by == "count":
            return -(-total // self.count)
        if self.is_even(causal=causal):
            even: Number = -(-total // -(-total // self.size))
            return even
        return total * 0 + self.size

    def lengths(self, total: int, *, causal: bool) -> list[int]:
        """Tokens in each chunk of a sequence of `total` tokens."""
        length = self.length(total, causal=causal)
        return [min(length, total - start) for start in range(0, total, length)]


@dataclass(frozen=True)
class Chunk:
    """The chunks of one number of all rows that have one."""

    tokens: Int[Tensor, " M"]
    """Which tokens of the full batch."""
    rows: Int[Tensor, " B"]
    """Which rows of the full batch."""
    packing: Packing
    in_all: bool
    """Whether these are all rows."""


@dataclass(frozen=True)
class Parting:
    """Rows in a new order, of which the first ones stay for the next chunk."""

    order: Int[Tensor, " B"]
    back: Int[Tensor, " B"]
    """Where each is in that order."""
    stays: int

    @classmethod
    def of(cls, order: Int[np.ndarray, " B"], stays: int, device: torch.device) -> "Parting":
        """Of an order that the host knows."""
        one, other = uploaded(np.stack((order, np.argsort(order))), device).unbind(0)
        return cls(one, other, stays)


@dataclass(frozen=True)
class Cut:
    """The M packed tokens of a full batch of B rows, cut into chunks."""

    packing: Packing
    number: Int[np.ndarray, " M"]
    """Of the chunk that holds the token."""
    column: Int[Tensor, " M"]
    """Of the token in its chunk."""
    counts: Int[Tensor, " B"]
    """Chunks of each row."""
    host_counts: Int[np.ndarray, " B"]
    """The same for the host."""
    most: int
    """Chunks of the row that has most."""
    longest: int
    """Tokens of the longest chunk."""

    @classmethod
    def of(cls, packing: Packing, settings: ChunkSettings, *, causal: bool) -> "Cut":
        """As `settings` say."""
        totals = packing.host_counts
        length = settings.length(totals, causal=causal)
        column = np.concatenate([np.arange(total) for total in totals])
        each = np.repeat(length, totals)
        counts = -(-totals // length)
        both = uploaded(np.concatenate((column % each, counts)), packing.row.device)
        return cls(
            packing,
            column // each,
            both[: column.shape[0]],
            both[column.shape[0] :],
            counts,
            int(counts.max()),
            int(np.minimum(length, totals).max()),
        )

    def tokens(self, head_width: int, dtype: torch.dtype, *, causal: bool) -> Tokens:
        """All tokens of the batch, positions counted from 0 in each chunk; they attend to no other chunk."""
        query, key = rotations(self.column, self.longest, head_width, dtype)
        reach = self.column + 1 if causal else None
        return Tokens(self.packing, packed_places(self.packing), query, key, reach)

    def chunk(self, number: int) -> Chunk:
        """Chunk `number`, counted from 0, of all rows that have one of that number."""
        tokens, rows, packing = self.packing.select(self.number == number)
        return Chunk(tokens, rows, packing, rows.shape[0] == self.packing.num_rows)

    def parting(self, number: int) -> Parting | None:
        """Before chunk `number`: the rows that had a chunk before it; None if all of them have this one."""
        before = self.host_counts[self.host_counts >= number]
        stays = before > number
        if stays.all():
            return None
        order = np.concatenate((stays.nonzero()[0], (~stays).nonzero()[0]))
        return Parting.of(order, int(stays.sum()), self.packing.row.device)

    @cached_property
    def back(self) -> Parting:
        """From rows in the order in which they part to the full batch."""
        order = np.argsort(np.argsort(self.host_counts, kind="stable"))
        return Parting.of(order, self.packing.num_rows, self.packing.row.device)

    @cached_property
    def order(self) -> tuple[Int[Tensor, " M"], Int[Tensor, " M"]]:
        """Tokens of the full batch with those of each chunk before those of the next; and where in that order
        each token is."""
        order = np.argsort(self.number, kind="stable")
        both = uploaded(np.concatenate((order, np.argsort(order))), self.packing.row.device)
        return both[: order.shape[0]], both[order.shape[0] :]
