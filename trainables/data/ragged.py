"""Rows of unequal length in one flat array: row i is `values[offsets[i]:offsets[i + 1]]`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self, TypeVar

import numpy as np


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Rows of tokens, each with a label."""

    tokens: np.ndarray
    """uint8, all rows in one flat array."""
    offsets: np.ndarray
    """int64, one more than there are rows."""
    labels: np.ndarray
    """int16."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row."""
        return np.diff(self.offsets)

    def rows(self) -> Iterator[bytes]:
        """Each row's tokens."""
        flat, bounds = self.tokens.tobytes(), self.offsets.tolist()
        return (flat[start:stop] for start, stop in pairwise(bounds))

    def take(self, indices: np.ndarray) -> Self:
        """The rows at `indices`, in that order."""
        lengths = self.lengths[indices]
        tokens = self.tokens[positions(self.offsets[indices], lengths)]
        return type(self)(tokens, offsets_of(lengths), self.labels[indices])


Rows = TypeVar("Rows", bound=LabelledRows)


def concatenate(parts: Sequence[Rows]) -> Rows:
    """All rows of `parts`, of which there is at least one, in order."""
    return type(parts[0])(
        np.concatenate([part.tokens for part in parts]),
        offsets_of(np.concatenate([part.lengths for part in parts])),
        np.concatenate([part.labels for part in parts]),
    )


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Where each row begins, and at the end where the last one stops."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def positions(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The flat positions of rows that begin at `starts`, row after row."""
    offsets = offsets_of(lengths)
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
