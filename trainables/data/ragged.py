"""Store rows of unequal length in one flat array: row i is `values[offsets[i]:offsets[i + 1]]`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self, TypeVar

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Rows of tokens, each with a label."""

    tokens: np.ndarray
    """Tokens of all rows in one flat array, uint8."""
    offsets: np.ndarray
    """Start of each row and end of the last one, int64."""
    labels: np.ndarray
    """Label of each row, int16."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each row."""
        return np.diff(self.offsets)

    def rows(self) -> Iterator[bytes]:
        """Return an iterator over the tokens of each row."""
        flat, bounds = self.tokens.tobytes(), self.offsets.tolist()
        return (flat[start:stop] for start, stop in pairwise(bounds))

    def column(self) -> pa.LargeListArray:
        """Return the tokens as a column of a table."""
        return list_column(self.offsets, self.tokens)

    def take(self, indices: np.ndarray) -> Self:
        """Return the rows at `indices`, in that order."""
        lengths = self.lengths[indices]
        tokens = self.tokens[positions(self.offsets[indices], lengths)]
        return type(self)(tokens, row_offsets(lengths), self.labels[indices])


Rows = TypeVar("Rows", bound=LabelledRows)


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Return all rows of `parts` in order; `parts` must not be empty."""
    return type(parts[0])(
        np.concatenate([part.tokens for part in parts]),
        row_offsets(np.concatenate([part.lengths for part in parts])),
        np.concatenate([part.labels for part in parts]),
    )


def row_offsets(lengths: np.ndarray) -> np.ndarray:
    """Return the index of the first value of each row, followed by the total number of values."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def list_column(offsets: np.ndarray, values: np.ndarray) -> pa.LargeListArray:
    """Return rows as a column of lists; arrays are shared, not copied."""
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))


def positions(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the indices of all values of rows that begin at `starts`, row after row."""
    offsets = row_offsets(lengths)
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
