"""One split of a task in memory or mapped from disk, read by index."""

import hashlib
from functools import cached_property

import numpy as np
import pyarrow as pa
import torch

from trainables.data.ragged import positions
from trainables.types import Batch


class Split:
    """Examples with columns `tokens` and `label`: views of the table, nothing is copied but batches."""

    def __init__(self, table: pa.Table, pad_id: int, content_hash: str) -> None:
        tokens, labels = columns(table)
        self._table = table  # keeps the mapped file open
        self._values = np.asarray(tokens.values)
        self._offsets = np.asarray(tokens.offsets)
        self._labels = labels
        self._pad_id = pad_id
        self.content_hash = content_hash
        """Of the examples in order, whatever the file format."""

    def __len__(self) -> int:
        return len(self._labels)

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, int64."""
        return np.diff(self._offsets).astype(np.int64)

    @cached_property
    def label_histogram(self) -> dict[int, int]:
        """How many examples have each label that occurs."""
        labels, counts = np.unique(self._labels, return_counts=True)
        return dict(zip(labels.tolist(), counts.tolist(), strict=True))

    @property
    def majority_rate(self) -> float:
        """Share of the most common label: the accuracy of always answering it."""
        return max(self.label_histogram.values()) / len(self)

    def batch(self, indices: np.ndarray) -> Batch:
        """The examples at `indices`, in that order, right-padded to the longest of them, on the CPU."""
        starts, lengths = self._offsets[indices].astype(np.int64), self.lengths[indices]
        mask = np.arange(lengths.max()) < lengths[:, None]
        tokens = np.full(mask.shape, self._pad_id, dtype=np.int64)
        tokens[mask] = self._values[positions(starts, lengths)]
        labels = self._labels[indices].astype(np.int64)
        return Batch(torch.from_numpy(tokens), torch.from_numpy(mask), torch.from_numpy(labels))

    def verify(self) -> bool:
        """Whether the examples are still those that were built; reads all of them."""
        return content_hash(self._table) == self.content_hash


def columns(table: pa.Table) -> tuple[pa.Array, np.ndarray]:
    """Tokens (a list array) and labels (int16) of a table of one chunk."""
    tokens, labels = table["tokens"], table["label"]
    assert tokens.num_chunks == labels.num_chunks == 1, "a split must be one record batch"
    return tokens.chunk(0), np.asarray(labels.chunk(0))


def content_hash(table: pa.Table) -> str:
    """Hash of token type, lengths, tokens and labels, the same for every layout of the file."""
    tokens, labels = columns(table)
    offsets = np.asarray(tokens.offsets).astype("<i8")
    values = np.asarray(tokens.values)[offsets[0] : offsets[-1]]
    digest = hashlib.blake2b(f"{values.dtype}/{len(labels)}".encode(), digest_size=16)
    for part in (np.diff(offsets), values, labels.astype("<i2")):
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
