"""One split of a task in memory or mapped from disk, read by index."""

import hashlib
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
import torch

from trainables.data.ragged import positions
from trainables.types import NOT_ASKED, Batch

HASHED_AT_ONCE = 1 << 22


class Split:
    """Examples in columns as `TaskModule.build` gives them: views of the table, only batches are copied."""

    def __init__(self, table: pa.Table, pad_id: int, content_hash: str) -> None:
        tokens = _column(table, "tokens")
        self._table = table  # keeps the mapped file open
        self._values = np.asarray(tokens.values)
        self._offsets = np.asarray(tokens.offsets)
        self._per_token = "targets" in table.column_names
        self._answers = _answers(table)
        self._steps = np.asarray(_column(table, "steps")) if "steps" in table.column_names else None
        self._pad_id = pad_id
        self.content_hash = content_hash
        """Of the examples in order, whatever the file format."""

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, int64."""
        return np.diff(self._offsets).astype(np.int64)

    @cached_property
    def label_histogram(self) -> dict[int, int]:
        """How often each label that occurs is the answer."""
        counts = np.bincount(self._answers[self._answers != NOT_ASKED])
        return {label: count for label, count in enumerate(counts.tolist()) if count}

    @property
    def majority_rate(self) -> float:
        """Share of the most common label: the accuracy of always answering it."""
        return max(self.label_histogram.values()) / sum(self.label_histogram.values())

    def batch(self, indices: np.ndarray) -> Batch:
        """The examples at `indices`, in that order, right-padded to the longest of them, on the CPU."""
        starts, lengths = self._offsets[indices].astype(np.int64), self.lengths[indices]
        mask = np.arange(lengths.max()) < lengths[:, None]
        places = positions(starts, lengths)
        tokens = np.full(mask.shape, self._pad_id, dtype=np.int64)
        tokens[mask] = self._values[places]
        if self._per_token:
            labels = np.full(mask.shape, NOT_ASKED, dtype=np.int64)
            # A table that is a part of another begins in the middle of its values.
            labels[mask] = self._answers[places - int(self._offsets[0])]
        else:
            labels = self._answers[indices].astype(np.int64)
        steps = None if self._steps is None else torch.from_numpy(self._steps[indices].astype(np.int64))
        return Batch(torch.from_numpy(tokens), torch.from_numpy(mask), torch.from_numpy(labels), steps)

    def verify(self) -> bool:
        """Whether the examples are still those that were built; reads all of them."""
        return content_hash(self._table) == self.content_hash


def content_hash(table: pa.Table) -> str:
    """Hash of token type, lengths, tokens, answers and steps, the same for every layout of the file."""
    tokens = _column(table, "tokens")
    offsets = np.asarray(tokens.offsets).astype("<i8")
    values = np.asarray(tokens.values)[offsets[0] : offsets[-1]]
    kind = "/targets" if "targets" in table.column_names else ""
    digest = hashlib.blake2b(f"{values.dtype}/{len(table)}{kind}".encode(), digest_size=16)
    digest.update(np.diff(offsets).data)
    digest.update(np.ascontiguousarray(values).data)
    for part in _pieces(_answers(table)):
        digest.update(part.astype("<i2").data)
    if "steps" in table.column_names:
        digest.update(np.asarray(_column(table, "steps")).astype("<i4").data)
    return digest.hexdigest()


def _answers(table: pa.Table) -> np.ndarray:
    """One label an example, or one a token, flat."""
    if "targets" not in table.column_names:
        return np.asarray(_column(table, "label"))
    targets, tokens = _column(table, "targets"), _column(table, "tokens")
    bounds = np.asarray(targets.offsets).astype(np.int64)
    lengths = np.diff(np.asarray(tokens.offsets).astype(np.int64))
    assert np.array_equal(np.diff(bounds), lengths), "targets must be as many as tokens"
    return np.asarray(targets.values)[bounds[0] : bounds[-1]]


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    assert column.num_chunks == 1, "a split must be one record batch"
    return column.chunk(0)


def _pieces(values: np.ndarray) -> Iterator[np.ndarray]:
    """Consecutive parts that are small enough to be converted."""
    return (values[start : start + HASHED_AT_ONCE] for start in range(0, len(values), HASHED_AT_ONCE))
