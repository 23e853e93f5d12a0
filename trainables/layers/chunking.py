"""Cut sequences into chunks, each sequence by its own length, so that chunks never depend on padding.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Alg. 2 (k is the
number of chunks, from the chunk size g) and s. 6.6 (k fixed). Their runs cut a sequence of n tokens into
k = ceil(n / g) chunks of ceil(n / k) tokens, so that chunks of size 100 hold 86 tokens at n = 512. On some
tasks they count positions from the start of the sequence instead of the chunk. This has no effect: xPos
depends only on differences, and tokens attend to no other chunk.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from trainables.layers.host import upload
from trainables.layers.packing import Packing, reorder, take
from trainables.layers.tokens import Tokens, packed_places
from trainables.layers.xpos import rotation_table
from trainables.settings import Settings, Small

Number = TypeVar("Number", int, np.ndarray, Tensor)


class ChunkSettings(Settings):
    """Division of sequences into chunks."""

    by: Literal["size", "count"] = "size"
    """Chunks have a fixed maximum size (size), or each sequence has a fixed number of chunks (count)."""
    size: Annotated[int, Small(4)] = Field(default=20, ge=1)
    """Maximum number of tokens in a chunk, if `by` is size."""
    count: Annotated[int, Small(3)] = Field(default=5, ge=1)
    """Maximum number of chunks in a sequence, if `by` is count; short sequences have one token per chunk."""
    even: bool | None = None
    """If `by` is size: the chunks of a sequence have equal lengths (true, as published), or are full except
    for the last (false). Default: equal lengths, but full chunks in a causal model, where no token may depend
    on the number of later tokens."""

    def is_even(self, *, causal: bool) -> bool:
        """Return whether chunks that are cut by size have equal lengths within a sequence."""
        return not causal if self.even is None else self.even

    def length(self, total: Number, *, causal: bool) -> Number:
        """Return the number of tokens in every chunk except the last, for a sequence of `total` tokens."""
        if self.by == "count":
            return -(-total // self.count)
        if self.is_even(causal=causal):
            even_length: Number = -(-total // -(-total // self.size))
            return even_length
        return total * 0 + self.size

    def lengths(self, total: int, *, causal: bool) -> list[int]:
        """Return the number of tokens in each chunk of a sequence of `total` tokens."""
        length = self.length(total, causal=causal)
        return [min(length, total - start) for start in range(0, total, length)]


@dataclass(frozen=True)
class Chunk:
    """The chunks with the same index in their rows, of all rows that are long enough to have one."""

    tokens: Int[Tensor, " M"]
    """Indices of the tokens in the full batch."""
    rows: Int[Tensor, " B"]
    """Indices of the rows in the full batch."""
    packing: Packing
    is_in_all_rows: bool
    """Whether every row of the batch has this chunk."""


@dataclass(frozen=True)
class ChunkLayout:
    """The M packed tokens of a full batch of B rows, cut into chunks."""

    packing: Packing
    chunk_index: Int[np.ndarray, " M"]
    """Index of the chunk that holds each token."""
    column: Int[Tensor, " M"]
    """Column of each token in its chunk."""
    counts: Int[Tensor, " B"]
    """Number of chunks of each row."""
    num_chunks_max: int
    """Largest number of chunks of a row."""
    longest: int
    """Number of tokens of the longest chunk."""

    @classmethod
    def of(cls, packing: Packing, settings: ChunkSettings, *, causal: bool) -> "ChunkLayout":
        """Cut the tokens of `packing` as set in `settings`."""
        totals = packing.host_counts
        length = settings.length(totals, causal=causal)
        column = np.concatenate([np.arange(total) for total in totals])
        lengths = np.repeat(length, totals)
        counts = -(-totals // length)
        device = packing.row.device
        return cls(
            packing,
            column // lengths,
            upload(column % lengths, device),
            upload(counts, device),
            int(counts.max()),
            int(np.minimum(length, totals).max()),
        )

    def tokens(self, head_width: int, dtype: torch.dtype, *, causal: bool) -> Tokens:
        """Build all tokens of the batch, with positions counted from 0 in each chunk.

        Tokens attend to no other chunk.
        """
        table = rotation_table(self.longest, head_width, dtype, self.column.device)
        num_visible = self.column + 1 if causal else None
        return Tokens(self.packing, packed_places(self.packing), self.column, table, num_visible)

    def chunks(self) -> list[Chunk]:
        """Return one `Chunk` for each index of chunks within their row, counted from 0."""
        chunks = []
        for chunk_index in range(self.num_chunks_max):
            tokens, rows, packing = self.packing.select(self.chunk_index == chunk_index)
            is_in_all_rows = rows.shape[0] == self.packing.num_rows
            chunks.append(Chunk(tokens, upload(rows, tokens.device), packing, is_in_all_rows))
        return chunks

    @cached_property
    def order(self) -> Int[Tensor, " M"]:
        """Token indices of the full batch sorted by chunk."""
        return upload(np.argsort(self.chunk_index, kind="stable"), self.packing.row.device)


@dataclass(frozen=True)
class PaddedRows(Packing):
    """Rows that keep padding among their packed tokens: only the first `counts` of each row are real."""

    @property
    def has_host_counts(self) -> bool:
        """False: tables are computed on the device, also if the host knows the lengths."""
        return False

    @property
    def padded(self) -> bool:
        """True: some packed tokens may be padding."""
        return True

    @property
    def ends(self) -> tuple[Int[Tensor, " B"], Int[Tensor, " B"]]:
        """Indices of the first and the last real token of each row."""
        return self.starts[:-1], self.starts[:-1] + self.counts - 1

    @cached_property
    def starts(self) -> Int[Tensor, " B_1"]:
        """Index of the first token of each row, followed by the total number of tokens."""
        return torch.arange(self.num_rows + 1, device=self.row.device) * self.width

    def mean(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "B D"]:
        """Return the mean over the real tokens of each row."""
        total = torch.where(self.mask[..., None], self.pad(x), 0).sum(1)
        return total / self.counts.to(total.dtype)[:, None]


@dataclass(frozen=True)
class PaddedChunk:
    """The chunks with the same index in their rows; rows without such a chunk are included too."""

    tokens: Tokens
    exists: Bool[Tensor, " B"]
    """Rows that have this chunk. Other rows have padding and one token of another chunk instead."""


@dataclass(frozen=True)
class PaddedChunkLayout:
    """The M packed tokens of a full batch of B rows, cut into C chunks of L places in each row."""

    chunks: list[PaddedChunk]
    counts: Int[Tensor, " B"]
    """Number of chunks of each row."""
    token_index: Int[Tensor, " C_B_L"]
    """For each place of a chunk, the index of a token in the full batch."""
    inverse_order: Int[Tensor, " M"]
    """For each token, its place among the chunks."""

    @classmethod
    def of(
        cls, packing: Packing, settings: ChunkSettings, head_width: int, dtype: torch.dtype, *, causal: bool
    ) -> "PaddedChunkLayout":
        """Cut the tokens as set in `settings`.

        Sizes are the largest that a row of at most `packing.width` tokens can need.
        """
        device, rows, totals = packing.row.device, packing.num_rows, np.arange(1, packing.width + 1)
        lengths = settings.length(totals, causal=causal)
        num_chunks_max, longest = int((-(-totals // lengths)).max()), int(np.minimum(lengths, totals).max())
        length, columns = settings.length(packing.counts, causal=causal), torch.arange(longest, device=device)
        chunk_starts = length * torch.arange(num_chunks_max, device=device)[:, None]
        clipped_columns = torch.minimum(chunk_starts[..., None] + columns, packing.counts[:, None] - 1)
        packed_to_padded = (packing.starts[:-1, None] + clipped_columns).flatten(1)
        counts = torch.minimum(packing.counts - chunk_starts, length).clamp(min=1)
        places = packed_places(packing).index_select(0, packed_to_padded.flatten()).view(num_chunks_max, -1)
        row = upload(np.repeat(np.arange(rows), longest), device)
        column = columns.repeat(rows)
        table, num_visible = (
            rotation_table(longest, head_width, dtype, device),
            column + 1 if causal else None,
        )
        chunks = [
            PaddedChunk(Tokens(PaddedRows(row, count, longest), place, column, table, num_visible), exists)
            for count, place, exists in zip(counts, places, chunk_starts < packing.counts, strict=True)
        ]
        packed_length = length.index_select(0, packing.row)
        chunk_index = torch.div(packing.column, packed_length, rounding_mode="floor")
        padded_to_packed = (chunk_index * rows + packing.row) * longest + packing.column % packed_length
        return cls(chunks, -(-packing.counts // length), packed_to_padded.flatten(), padded_to_packed)

    def parts(self, x: Float[Tensor, "M D"]) -> list[Float[Tensor, "B_L D"]]:
        """Split `x`, vectors of all tokens, by chunk."""
        return list(reorder(x, self.token_index, self.inverse_order).chunk(len(self.chunks)))

    def join_parts(self, parts: list[Float[Tensor, "B_L D"]]) -> Float[Tensor, "M D"]:
        """Return the vectors of all tokens of the batch, given the vectors of each chunk."""
        return take(torch.cat(parts), self.inverse_order)
