"""Filler rows, by which all batches of a training have one of a few shapes."""

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor
from torch.nn import functional as F

from trainables.types import Batch

TOKEN_STEP = 128
"""Numbers of tokens of filled batches are multiples of this, or of a multiple of it in large batches."""
MOST_SHAPES = 32
"""Most numbers of tokens that filled batches of a training can have."""


@dataclass(frozen=True)
class Filler:
    """How batches are filled up with rows that nothing is learned from.

    Filled batches of as many rows have the same width, the same number of rows, and as many tokens as some
    multiple of `token_step`.
    """

    width: int
    """Columns of a filled batch."""
    rows: int
    """Filler rows of a batch."""
    token_step: int
    pad_id: int

    @classmethod
    def of(cls, rows: int, length_max: int, pad_id: int) -> "Filler":
        """The filler of batches with at most so many `rows` of at most `length_max` tokens."""
        width = max(2, length_max)
        step = TOKEN_STEP * ceil(rows * width / (TOKEN_STEP * MOST_SHAPES))
        return cls(width, ceil((step - 1) / (width - 1)), step, pad_id)

    def filled(self, batch: Batch) -> Batch:
        """`batch` with filler rows after its own, of at least one token each.

        Raises ValueError for a batch with longer rows than `length_max`.
        """
        if batch.tokens.shape[1] > self.width:
            raise ValueError(
                f"rows must have at most the {self.width} tokens that the task states as its longest"
                f" training input, got {batch.tokens.shape[1]}; correct length_max of the task, or drop"
                " train.graph"
            )
        rest = self.rows + -(int(batch.mask.sum()) + self.rows) % self.token_step
        lengths = rest // self.rows + (torch.arange(self.rows) < rest % self.rows)
        mask = torch.arange(self.width) < lengths[:, None]
        filler = torch.where(mask, batch.tokens[0, 0], self.pad_id)
        return Batch(
            torch.cat((self._widened(batch.tokens, self.pad_id), filler)),
            torch.cat((self._widened(batch.mask, value=False), mask)),
            torch.cat((batch.labels, batch.labels[:1].expand(self.rows, *batch.labels.shape[1:]))),
        )

    def _widened(self, x: Tensor, value: int | bool) -> Tensor:
        return F.pad(x, (0, self.width - x.shape[1]), value=value)
