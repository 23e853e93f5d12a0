"""Draw examples with random numbers that are equal in all NumPy versions, and without duplicates.

Numbers come from raw generator output, the only part of a generator that NumPy never changes.
"""

from collections.abc import Hashable, Iterable

import numpy as np


def uniform(stream: np.random.Generator, n: int) -> np.ndarray:
    """Return `n` numbers in [0, 1)."""
    numbers = np.asarray(stream.bit_generator.random_raw(n), dtype=np.uint64)
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw_integers(stream: np.random.Generator, n: int, bound: int) -> np.ndarray:
    """Return `n` integers in [0, bound)."""
    return (uniform(stream, n) * bound).astype(np.int64)


def permutation(stream: np.random.Generator, n: int) -> np.ndarray:
    """Return a random order of the integers below `n`."""
    return np.argsort(stream.bit_generator.random_raw(n), kind="stable")


def find_new(keys: Iterable[Hashable], seen: set[Hashable], num_wanted: int) -> list[int]:
    """Return indices of the first `num_wanted` keys (or fewer) not in `seen`; add these keys to `seen`."""
    indices: list[int] = []
    for index, key in enumerate(keys):
        if key not in seen:
            seen.add(key)
            indices.append(index)
            if len(indices) == num_wanted:
                break
    return indices
