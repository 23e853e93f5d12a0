"""Which examples a step sees: a function of the seed and the step alone, so that resuming needs no state.

Training reads an endless sequence: a fresh random order of all examples for epoch 0, then one for epoch 1, and so
on, cut into batches that are always full. A batch may thus span two epochs; no example is dropped and none weighs
more than another. Arms that share seed, data set and batch size see the same examples at the same step.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from trainables.streams import numpy_stream


def batch_indices(n_examples: int, batch_size: int, seed: int, step: int) -> np.ndarray:
    """Indices (int64) of the `batch_size` examples of the 0-based `step`."""
    return _read(lambda epoch: _shuffled(n_examples, seed, epoch), n_examples, batch_size, step)


class Bucketed:
    """Like `batch_indices`, but batches hold examples of similar length, which saves padding.

    Each epoch's random order is cut into pools of `pool_batches` batches; a pool is sorted by length (ties keep
    their random order), cut into batches, and the batches are shuffled. The larger the pool, the less padding
    and the less random the batches.
    """

    def __init__(self, lengths: np.ndarray, batch_size: int, seed: int, pool_batches: int = 32) -> None:
        assert batch_size > 0 and pool_batches > 0, f"must be positive, got {batch_size=}, {pool_batches=}"
        self._lengths = lengths
        self._batch_size = batch_size
        self._seed = seed
        self._pool = batch_size * pool_batches
        self._epoch = lru_cache(maxsize=2)(self._make_epoch)

    def batch_indices(self, step: int) -> np.ndarray:
        """Indices (int64) of the examples of the 0-based `step`."""
        return _read(self._epoch, len(self._lengths), self._batch_size, step)

    def _make_epoch(self, epoch: int) -> np.ndarray:
        order = _shuffled(len(self._lengths), self._seed, epoch)
        pools = [order[start : start + self._pool] for start in range(0, len(order), self._pool)]
        batches: list[np.ndarray] = []
        for pool in pools:
            by_length = pool[np.argsort(self._lengths[pool], kind="stable")]
            batches += np.split(by_length, range(self._batch_size, len(by_length), self._batch_size))
        keys = numpy_stream(self._seed, "order", epoch, "batches").bit_generator.random_raw(len(batches))
        return np.concatenate([batches[index] for index in np.argsort(keys, kind="stable")])


def evaluation_batches(
    lengths: np.ndarray, batch_size: int, tokens_max: int | None = None
) -> Iterator[np.ndarray]:
    """Every example once, sorted by length, longest first: little padding, and too large a batch fails at once.

    A batch has at most `batch_size` examples and, padding counted, at most `tokens_max` tokens (but at least one
    example). The order depends on `lengths` alone.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = batch_size
        if tokens_max is not None:
            size = min(size, max(1, tokens_max // int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def padding_share(lengths: np.ndarray, batches: Sequence[np.ndarray]) -> float:
    """Share of the positions of right-padded `batches` that are padding."""
    real = sum(int(lengths[batch].sum()) for batch in batches)
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - real / padded


def _read(
    epoch_order: Callable[[int], np.ndarray], n_examples: int, batch_size: int, step: int
) -> np.ndarray:
    """Positions `step * batch_size` and on of all epochs' orders laid end to end."""
    assert n_examples > 0 and batch_size > 0 and step >= 0, f"got {n_examples=}, {batch_size=}, {step=}"
    parts: list[np.ndarray] = []
    position, missing = step * batch_size, batch_size
    while missing:
        epoch, start = divmod(position, n_examples)
        part = epoch_order(epoch)[start : start + missing]
        parts.append(part)
        position += len(part)
        missing -= len(part)
    return np.concatenate(parts)


@lru_cache(maxsize=4)
def _shuffled(n_examples: int, seed: int, epoch: int) -> np.ndarray:
    """A random order of all examples, read-only since it is shared."""
    # Sorting raw output is the same in every NumPy version; Generator.permutation does not promise to be.
    keys = numpy_stream(seed, "order", epoch).bit_generator.random_raw(n_examples)
    order = np.argsort(keys, kind="stable")
    order.setflags(write=False)
    return order
