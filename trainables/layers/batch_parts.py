"""A batch that a step works through in parts: where the rows of a part are in the whole batch.

What is dropped of a token depends on its place in the full batch (`layers.dropout`). Whoever runs a model on
a part says which rows these are, and all that makes places asks here, so that of each example the same is
dropped in a part as in the whole batch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class BatchPart:
    """Some rows, one after the other, of a batch."""

    first: int
    """The first of them, counted from 0."""
    rows: int
    whole: int
    """Rows of the batch."""
    predictions: int | Int[Tensor, ""] = 0
    """Predictions that are asked of the rows before the first."""


Numbers = TypeVar("Numbers", np.ndarray, Tensor)
_PART: ContextVar[BatchPart | None] = ContextVar("part", default=None)


@contextmanager
def running_on(part: BatchPart) -> Iterator[None]:
    """Inside, forward passes of this thread are on `part` of their batch."""
    token = _PART.set(part)
    try:
        yield
    finally:
        _PART.reset(token)


def rows_in_batch(row: Numbers) -> Numbers:
    """Numbers of rows in the whole batch, of rows that are numbered from 0.

    Of heads that stack several sequences of each example, all first ones before all second ones, as many rows
    as the whole batch has lie between an example's sequences.
    """
    part = _PART.get()
    if part is None:
        return row
    sequence = row // part.rows
    found: Numbers = row + part.first + sequence * (part.whole - part.rows)
    return found


def predictions_in_batch(count: int, device: torch.device) -> Int[Tensor, " K"]:
    """Numbers in the whole batch of the `count` predictions that are asked here."""
    numbers = torch.arange(count, device=device)
    part = _PART.get()
    return numbers if part is None else numbers + part.predictions
