"""Choose the examples of a step from the seed and the step alone, so that resuming needs no state.

Training reads an endless sequence: a random order of all examples for epoch 0, another for epoch 1, and so
on. It is divided into batches that are always full. A batch may thus contain the end of one epoch and the
start of the next. No example is dropped and all have equal weight. Arms with equal seed, data set and batch
size read the same examples at a step.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from trainables.data.draws import permutation
from trainables.streams import numpy_stream


def batch_indices(n_examples: int, batch_size: int, seed: int, step: int) -> np.ndarray:
    """Return the indices (int64) of the `batch_size` examples of the 0-based `step`."""
    assert min(n_examples, batch_size) > 0, f"must be positive, got {n_examples=}, {batch_size=}"
    assert step >= 0, f"steps are counted from 0, got {step=}"
    parts: list[np.ndarray] = []
    position, num_wanted = step * batch_size, batch_size
    while num_wanted:
        epoch, start = divmod(position, n_examples)
        part = _shuffle(n_examples, seed, epoch)[start : start + num_wanted]
        parts.append(part)
        position += len(part)
        num_wanted -= len(part)
    return np.concatenate(parts)


class Bucketed:
    """Order as in `batch_indices`, but with examples of similar length in each batch, to reduce padding.

    Each pool of `pool_batches` batches of the random sequence is sorted by length (ties retain their random
    order) and divided into batches, which are shuffled. A larger pool gives less padding and less random
    batches.
    """

    def __init__(self, lengths: np.ndarray, batch_size: int, seed: int, pool_batches: int = 32) -> None:
        assert min(batch_size, pool_batches) > 0, f"must be positive, got {batch_size=}, {pool_batches=}"
        self._lengths = lengths
        self._batch_size = batch_size
        self._seed = seed
        self._pool_batches = pool_batches
        self._cached_pool: tuple[int, np.ndarray] | None = None  # the last used pool

    def batch_indices(self, step: int) -> np.ndarray:
        """Return the indices (int64) of the examples of the 0-based `step`."""
        pool, batch = divmod(step, self._pool_batches)
        if self._cached_pool is None or self._cached_pool[0] != pool:
            self._cached_pool = pool, self._make_pool(pool)
        indices: np.ndarray = self._cached_pool[1][batch]
        return indices

    def _make_pool(self, pool: int) -> np.ndarray:
        """Return all batches of one pool, one per row."""
        size = self._batch_size * self._pool_batches
        indices = batch_indices(len(self._lengths), size, self._seed, pool)
        length_order = indices[np.argsort(self._lengths[indices], kind="stable")]
        order = permutation(numpy_stream(self._seed, "order", "pool", pool), self._pool_batches)
        batches: np.ndarray = length_order.reshape(self._pool_batches, self._batch_size)
        return np.asarray(batches[order])


class TokenBatches:
    """Batches of similar length with at most `tokens_max` tokens including padding, or with one example.

    For every epoch all examples are put in a random order, sorted by length (ties retain their random order)
    and divided into batches, which are shuffled. The division depends on the lengths alone. Every epoch
    therefore has the same number of batches, and the step determines the epoch. Every epoch contains every
    example once.
    """

    def __init__(self, lengths: np.ndarray, tokens_max: int, seed: int) -> None:
        assert min(len(lengths), tokens_max) > 0, f"must be positive, got {len(lengths)=}, {tokens_max=}"
        self._lengths = lengths
        self._cuts = _cuts(np.sort(lengths), tokens_max)
        self._seed = seed
        self._cached_epoch: tuple[int, np.ndarray, np.ndarray] | None = None  # the last used epoch

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self._cuts) - 1

    def batch_indices(self, step: int) -> np.ndarray:
        """Return the indices (int64) of the examples of the 0-based `step`."""
        epoch, place = divmod(step, len(self))
        if self._cached_epoch is None or self._cached_epoch[0] != epoch:
            order = _shuffle(len(self._lengths), self._seed, epoch)
            length_order = order[np.argsort(self._lengths[order], kind="stable")]
            batches = permutation(numpy_stream(self._seed, "order", "batches", epoch), len(self))
            self._cached_epoch = epoch, length_order, batches
        _, length_order, batches = self._cached_epoch
        start, stop = self._cuts[batches[place] : batches[place] + 2]
        indices: np.ndarray = length_order[start:stop]
        return indices


def _cuts(ascending: np.ndarray, tokens_max: int) -> np.ndarray:
    """Return the index of the first example of each batch, followed by the number of examples."""
    cuts = [0]
    while (start := cuts[-1]) < len(ascending):
        next_lengths = ascending[start : start + max(1, tokens_max // int(ascending[start]))]
        padded_sizes = (
            np.arange(1, len(next_lengths) + 1) * next_lengths
        )  # number of tokens if the batch ends here
        cuts.append(start + max(1, int(np.count_nonzero(padded_sizes <= tokens_max))))
    return np.asarray(cuts)


def evaluation_batches(
    lengths: np.ndarray, batch_size: int, tokens_max: int | None = None
) -> Iterator[np.ndarray]:
    """Yield batches with every example once, sorted by length to reduce padding.

    The longest examples come first, so that a batch that does not fit into memory fails at once. A batch has
    at most `batch_size` examples and, including padding, at most `tokens_max` tokens (but at least one
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
    """Return the share of positions in right-padded `batches` that are padding."""
    num_real = sum(int(lengths[batch].sum()) for batch in batches)
    num_padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - num_real / num_padded


@lru_cache(maxsize=4)
def _shuffle(n_examples: int, seed: int, epoch: int) -> np.ndarray:
    """Return a random order of all examples, read-only because it is shared."""
    order = permutation(numpy_stream(seed, "order", epoch), n_examples)
    order.setflags(write=False)
    return order
