"""Track which rows of the full batch a step is processing when it processes the batch in parts.

Dropout of a token depends on its place in the full batch (`layers.dropout`). The caller of a model declares
the rows of the part, and all code that computes places reads them here. Each example therefore has the same
dropout masks in a part as in the full batch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class BatchPart:
    """Consecutive rows of a batch."""

    first_row: int
    """Index of the first row, counted from 0."""
    rows: int
    num_rows_in_batch: int
    """Number of rows of the full batch."""
    predictions: int | Int[Tensor, ""] = 0
    """Number of predictions of the rows before the first."""


_PART: ContextVar[BatchPart | None] = ContextVar("part", default=None)


@contextmanager
def declare_part(part: BatchPart) -> Iterator[None]:
    """Declare that forward passes of this thread process `part` of their batch within the context."""
    token = _PART.set(part)
    try:
        yield
    finally:
        _PART.reset(token)


def rows_in_batch(row: Int[Tensor, " *M"]) -> Int[Tensor, " *M"]:
    """Return the indices in the full batch of rows that are numbered from 0 within the part.

    Some heads stack several sequences of each example: all first sequences, then all second ones. The
    sequences of one example are then as many rows apart as the full batch has rows.
    """
    part = _PART.get()
    if part is None:
        return row
    sequence = torch.div(row, part.rows, rounding_mode="floor")
    return row + part.first_row + sequence * (part.num_rows_in_batch - part.rows)


def predictions_in_batch(count: int, device: torch.device) -> Int[Tensor, " K"]:
    """Return the indices in the full batch of the `count` predictions of the current part."""
    numbers = torch.arange(count, device=device)
    part = _PART.get()
    return numbers if part is None else numbers + part.predictions
