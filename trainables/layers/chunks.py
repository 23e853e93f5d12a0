"""How sequences are cut into chunks. Each by its own length, so that a chunk never depends on padding.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Alg. 2 (k is the
number of chunks, from the chunk size g) and s. 6.6 (k fixed). Their runs cut a sequence of n tokens into
k = ceil(n / g) chunks of ceil(n / k) tokens, so that chunks of size 100 hold 86 tokens at n = 512. On some
tasks they count positions from the start of the sequence and not of the chunk: xPos knows only differences,
and tokens attend to no other chunk, so that the choice does not matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from trainables.layers.host import uploaded
from trainables.layers.packing import Packing, PaddedRows
from trainables.layers.positions import Rotation, rotations
from trainables.layers.stacked import by_row
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


@dataclass(frozen=True)
class PaddedChunk:
    """The chunks of one number of all rows: those that have none are given some token."""

    tokens: Int[Tensor, " M"]
    """Which tokens of the full batch; padding has any."""
    exists: Bool[Tensor, " B"]
    """Rows that have a chunk of that number."""
    placed: Tokens
    """The same tokens, positions counted from 0."""


@dataclass(frozen=True)
class PaddedCut:
    """`Cut` where shapes must not depend on lengths (`layers.stacked`): every row has as many chunks, as long
    as any could be."""

    packing: Packing
    length: Int[Tensor, " B"]
    """Tokens of each chunk of a row, but for the last."""
    counts: Int[Tensor, " B"]
    """Chunks of each row."""
    most: int
    rows: PaddedRows
    """Of one chunk, were all full."""
    rotations: tuple[Rotation, Rotation]
    place: Int[Tensor, " M"]
    causal: bool

    @classmethod
    def of(
        cls,
        packing: Packing,
        settings: ChunkSettings,
        head_width: int,
        dtype: torch.dtype,
        *,
        causal: bool,
    ) -> "PaddedCut":
        """As `settings` say."""
        totals = np.arange(1, packing.width + 1)
        lengths = settings.length(totals, causal=causal)
        length = settings.length(packing.counts, causal=causal)
        longest = int(np.minimum(lengths, totals).max())
        rows = PaddedRows.of(torch.full((packing.num_rows,), longest, device=packing.row.device), longest)
        return cls(
            packing,
            length,
            -(-packing.counts // length),
            int((-(-totals // lengths)).max()),
            rows,
            rotations(rows.column, longest, head_width, dtype),
            packed_places(packing),
            causal,
        )

    def chunks(self) -> list[PaddedChunk]:
        """All of all rows, one number after the other; what is made of them is made for all at once."""
        numbers = uploaded(np.arange(self.most)[:, None], self.length.device)
        columns = self.rows.column[: self.rows.width]
        first = self.length * numbers
        exists = first < self.packing.counts
        counts = torch.minimum(self.packing.counts - first, self.length).clamp(min=1)
        begins = self.packing.starts[:-1, None]
        tokens = begins + (first[..., None] + columns).clamp(max=self.packing.width - 1)
        masks = columns < counts[..., None]
        places = self.place.index_select(0, tokens.flatten()).view(self.most, -1)
        made: dict[Any, Any] = {}
        reach = self.rows.column + 1 if self.causal else None
        placed = [
            Tokens(self.rows.with_counts(count, mask), place, *self.rotations, reach, made=made)
            for count, mask, place in zip(counts.unbind(), masks.unbind(), places.unbind(), strict=True)
        ]
        each = zip(tokens.flatten(1).unbind(), by_row(exists).unbind(), placed, strict=True)
        return [PaddedChunk(*those) for those in each]

    def whole(self, chunks: Sequence[Float[Tensor, "K D"]]) -> Float[Tensor, "M D"]:
        """The tokens of the full batch, given those of all chunks."""
        column, row = self.packing.column, self.packing.row
        length = self.packing.spread(self.length)
        number = torch.div(column, length, rounding_mode="floor").clamp(max=self.most - 1)
        place = (number * self.packing.num_rows + row) * self.rows.width
        return torch.cat([*chunks]).index_select(0, place + (column % length).clamp(max=self.rows.width - 1))
