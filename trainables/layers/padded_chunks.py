"""Chunks of sequences in passes with constant shapes: all rows have as many, as long as any could be.

What is no token of a chunk is padding, which nothing attends to and no mean counts.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trainables.layers.chunks import ChunkSettings
from trainables.layers.host import uploaded
from trainables.layers.packing import Packing, moved, take
from trainables.layers.positions import rotations
from trainables.layers.tokens import Tokens, packed_places


@dataclass(frozen=True)
class PaddedRows(Packing):
    """Rows that keep their padding among their packed tokens: only the first `counts` of each are real."""

    @property
    def padded(self) -> bool:
        """True: some tokens may be padding."""
        return True

    @property
    def ends(self) -> tuple[Int[Tensor, " B"], Int[Tensor, " B"]]:
        """Where the first and the last real token of each row are."""
        return self.starts[:-1], self.starts[:-1] + self.counts - 1

    @cached_property
    def starts(self) -> Int[Tensor, " B_1"]:
        """Where each row begins, and the end of the last."""
        return torch.arange(self.num_rows + 1, device=self.row.device) * self.width

    def mean(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "B D"]:
        """Mean over the real tokens of each row."""
        total = torch.where(self.mask[..., None], self.pad(x), 0).sum(1)
        return total / self.counts.to(total.dtype)[:, None]


@dataclass(frozen=True)
class PaddedChunk:
    """The chunks of one number of all rows."""

    tokens: Tokens
    exists: Bool[Tensor, " B"]
    """Rows that have a chunk of that number; the others have one of padding and a token of another chunk."""


@dataclass(frozen=True)
class PaddedCut:
    """The M packed tokens of a full batch of B rows, cut into C chunks of L places in each row."""

    chunks: list[PaddedChunk]
    counts: Int[Tensor, " B"]
    """Chunks of each row."""
    out: Int[Tensor, " C_B_L"]
    """For each place of a chunk a token of the full batch."""
    back: Int[Tensor, " M"]
    """For each token its place."""

    @classmethod
    def of(
        cls, packing: Packing, settings: ChunkSettings, head_width: int, dtype: torch.dtype, *, causal: bool
    ) -> "PaddedCut":
        """As `settings` say; sizes are the largest of any row of at most `packing.width` tokens."""
        device, rows, totals = packing.row.device, packing.num_rows, np.arange(1, packing.width + 1)
        lengths = settings.length(totals, causal=causal)
        most, longest = int((-(-totals // lengths)).max()), int(np.minimum(lengths, totals).max())
        length, columns = settings.length(packing.counts, causal=causal), torch.arange(longest, device=device)
        first = length * torch.arange(most, device=device)[:, None]
        inside = torch.minimum(first[..., None] + columns, packing.counts[:, None] - 1)
        out = (packing.starts[:-1, None] + inside).flatten(1)
        counts = torch.minimum(packing.counts - first, length).clamp(min=1)
        places = packed_places(packing).index_select(0, out.flatten()).view(most, -1)
        row = uploaded(np.repeat(np.arange(rows), longest), device)
        column = columns.repeat(rows)
        turns, reach = rotations(column, longest, head_width, dtype), column + 1 if causal else None
        made: dict[Any, Any] = {}
        chunks = [
            PaddedChunk(Tokens(PaddedRows(row, count, longest), place, *turns, reach, made=made), exists)
            for count, place, exists in zip(counts, places, first < packing.counts, strict=True)
        ]
        each = length.index_select(0, packing.row)
        number = torch.div(packing.column, each, rounding_mode="floor")
        back = (number * rows + packing.row) * longest + packing.column % each
        return cls(chunks, -(-packing.counts // length), out.flatten(), back)

    def parts(self, x: Float[Tensor, "M D"]) -> list[Float[Tensor, "B_L D"]]:
        """Vectors of the tokens of each chunk."""
        return list(moved(x, self.out, self.back).chunk(len(self.chunks)))

    def whole(self, parts: list[Float[Tensor, "B_L D"]]) -> Float[Tensor, "M D"]:
        """Vectors of the full batch, of those of each chunk."""
        return take(torch.cat(parts), self.back)
