"""Provide one split of a task, in memory or memory-mapped, with access by index."""

import hashlib
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import torch

from trainables.data.ragged import positions
from trainables.types import NOT_ASKED, Batch

HASH_BLOCK = 1 << 22


class Split:
    """Examples in the columns that `TaskModule.build` returns, as views of the table.

    Labels are one per example (column `label`), one per token (`targets`), or a row per example (`answer`)
    that is followed by `end_id`.
    """

    def __init__(self, table: pa.Table, pad_id: int, content_hash: str, end_id: int | None = None) -> None:
        tokens = _column(table, "tokens")
        self._table = table  # keeps the mapped file open
        self._values = _numpy(tokens.values)
        self._offsets = _numpy(tokens.offsets)
        self._kind = _kind(table)
        self._answers, self._bounds = _answers(table)
        self._steps = _numpy(_column(table, "steps")) if "steps" in table.column_names else None
        self._pad_id = pad_id
        self._end_id = end_id
        self.content_hash = content_hash
        """Hash of the examples in order, independent of the file format."""

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @cached_property
    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each example, int64."""
        return np.diff(self._offsets).astype(np.int64)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Return the length of the longer of input and answer (with end token) for each example (int64)."""
        return np.maximum(self.lengths, np.diff(self._bounds) + 1) if self._kind == "answer" else self.lengths

    @cached_property
    def label_histogram(self) -> dict[int, int]:
        """Return how often each label, or each token of answers (without end tokens), occurs."""
        counts = np.bincount(self._answers[self._answers != NOT_ASKED])
        return {label: count for label, count in enumerate(counts.tolist()) if count}

    @property
    def answer_lengths(self) -> np.ndarray | None:
        """Return the number of tokens of each answer, without end token (int64); None without answers."""
        return np.diff(self._bounds) if self._kind == "answer" else None

    @property
    def majority_rate(self) -> float:
        """Return the share of the most common label or full answer: the accuracy of always predicting it."""
        if self._kind == "answer":
            hashes = np.fromiter(_row_hashes(self._answers, self._bounds), np.uint64, len(self))
            return float(np.unique(hashes, return_counts=True)[1].max()) / len(self)
        return max(self.label_histogram.values()) / sum(self.label_histogram.values())

    def batch(self, indices: np.ndarray) -> Batch:
        """Return the examples at `indices` in that order, right-padded to the longest, on the CPU."""
        lengths = self.lengths[indices]
        tokens, mask = _pad(self._values, self._offsets[indices], lengths, self._pad_id)
        steps = None if self._steps is None else torch.from_numpy(self._steps[indices].astype(np.int64))
        labels = torch.from_numpy(self._labels(indices))
        return Batch(torch.from_numpy(tokens), torch.from_numpy(mask), labels, steps)

    def _labels(self, indices: np.ndarray) -> np.ndarray:
        if self._kind == "label":
            return np.asarray(self._answers[indices], dtype=np.int64)
        starts = self._bounds[indices]
        lengths = self._bounds[indices + 1] - starts
        has_end_token = self._kind == "answer"
        labels, _ = _pad(
            self._answers, starts, lengths, NOT_ASKED, columns=int(lengths.max()) + has_end_token
        )
        if has_end_token:
            assert self._end_id is not None, "a split of answers must have an end_id"
            labels[np.arange(len(labels)), lengths] = self._end_id
        return labels

    def num_repeated_in(self, other: "Split") -> int:
        """Return the number of examples whose tokens are identical to those of an example of `other`."""
        hashes, other_hashes = (
            np.fromiter(_row_hashes(split._values.astype(np.int64), split._offsets), np.uint64, len(split))
            for split in (self, other)
        )
        return int(np.isin(hashes, other_hashes).sum())

    def verify(self) -> bool:
        """Return whether the examples match their content hash; reads all of them."""
        return content_hash(self._table) == self.content_hash


def content_hash(table: pa.Table) -> str:
    """Return a hash of token type, lengths, tokens, answers and steps, independent of the file layout."""
    tokens = _column(table, "tokens")
    offsets = _numpy(tokens.offsets).astype("<i8")
    values = _numpy(tokens.values)[offsets[0] : offsets[-1]]
    kind = _kind(table)
    kind_suffix = "" if kind == "label" else f"/{kind}"
    digest = hashlib.blake2b(f"{values.dtype}/{len(table)}{kind_suffix}".encode(), digest_size=16)
    digest.update(np.diff(offsets).data)
    digest.update(np.ascontiguousarray(values).data)
    answers, bounds = _answers(table)
    if kind == "answer":
        digest.update(np.diff(bounds).astype("<i8").data)
    for part in _hash_blocks(answers):
        digest.update(part.astype("<u4" if kind == "answer" else "<i2").data)
    if "steps" in table.column_names:
        digest.update(_numpy(_column(table, "steps")).astype("<i4").data)
    return digest.hexdigest()


def _kind(table: pa.Table) -> str:
    """Return the name of the column with the targets."""
    columns = [name for name in ("label", "targets", "answer") if name in table.column_names]
    assert len(columns) == 1, f"a split must have one of label, targets and answer, got {table.column_names}"
    return columns[0]


def _answers(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return all targets in one flat array, and the bounds of each example's targets if it has several."""
    kind = _kind(table)
    column = _column(table, kind)
    if kind == "label":
        return _numpy(column), np.zeros(0, dtype=np.int64)
    bounds = _numpy(column.offsets).astype(np.int64)
    lengths = np.diff(_numpy(_column(table, "tokens").offsets).astype(np.int64))
    assert kind == "answer" or np.array_equal(np.diff(bounds), lengths), "targets must be as many as tokens"
    # The values of a slice of a table may start in the middle of the array.
    return _numpy(column.values)[bounds[0] : bounds[-1]], bounds - bounds[0]


def _pad(
    values: np.ndarray, starts: np.ndarray, lengths: np.ndarray, fill: int, columns: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that begin at `starts`, right-padded with `fill` (int64), and their mask (bool)."""
    mask = np.arange(lengths.max() if columns is None else columns) < lengths[:, None]
    padded = np.full(mask.shape, fill, dtype=np.int64)
    padded[mask] = values[positions(starts.astype(np.int64), lengths)]
    return padded, mask


def _row_hashes(values: np.ndarray, bounds: np.ndarray) -> Iterator[int]:
    """Yield a 64-bit hash of each row, so that millions of long rows can be counted in little memory."""
    for start, stop in pairwise(bounds.tolist()):
        yield int.from_bytes(hashlib.blake2b(values[start:stop].tobytes(), digest_size=8).digest())


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    assert column.num_chunks == 1, "a split must be one record batch"
    return column.chunk(0)


def _numpy(column: pa.Array) -> np.ndarray:
    """Return the integers of a column, not copied. `np.asarray` would import pandas (half a second)."""
    return np.from_dlpack(column)


def _hash_blocks(values: np.ndarray) -> Iterator[np.ndarray]:
    """Return an iterator over consecutive parts of `values`, of at most `HASH_BLOCK` values each."""
    return (values[start : start + HASH_BLOCK] for start in range(0, len(values), HASH_BLOCK))
