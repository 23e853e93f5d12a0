"""Rows of unequal length in one flat array: row i is `values[offsets[i]:offsets[i + 1]]`."""

import numpy as np


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Where each row begins, and at the end where the last one stops."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def positions(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The flat positions of rows that begin at `starts`, row after row."""
    offsets = offsets_of(lengths)
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
