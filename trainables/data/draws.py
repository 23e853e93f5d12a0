"""Random numbers from raw generator output, the only part of a generator that NumPy never changes."""

import numpy as np


def uniform(stream: np.random.Generator, n: int) -> np.ndarray:
    """`n` numbers in [0, 1)."""
    raw = np.asarray(stream.bit_generator.random_raw(n), dtype=np.uint64)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(stream: np.random.Generator, n: int, bound: int) -> np.ndarray:
    """`n` integers in [0, bound)."""
    return (uniform(stream, n) * bound).astype(np.int64)
