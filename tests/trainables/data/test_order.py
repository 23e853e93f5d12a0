from itertools import islice, pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from trainables.data import order
from trainables.data.order import Bucketed, TokenBatches, batch_indices, evaluation_batches, padding_share

sizes = st.integers(1, 40)
seeds = st.integers(0, 2**40)


@given(sizes, sizes, seeds)
def test_epoch_reads_every_example_once(n: int, batch_size: int, seed: int) -> None:
    steps = range(-(-3 * n // batch_size))
    indices = np.concatenate([batch_indices(n, batch_size, seed, step) for step in steps])
    for epoch in range(3):
        assert sorted(indices[epoch * n : (epoch + 1) * n].tolist()) == list(range(n))


@given(sizes, sizes, seeds, st.lists(st.integers(0, 30), min_size=1))
def test_batch_of_a_step_is_independent_of_earlier_steps(
    n: int, batch_size: int, seed: int, steps: list[int]
) -> None:
    batches_by_step = {step: batch_indices(n, batch_size, seed, step).tolist() for step in sorted(set(steps))}
    order._shuffle.cache_clear()
    for step in steps:
        batch = batch_indices(n, batch_size, seed, step)
        assert batch.shape == (batch_size,)
        assert batch.tolist() == batches_by_step[step]


def test_order_is_unchanged() -> None:
    """Resumed trials and arms added later must read the same batches as earlier trials."""
    assert [batch_indices(10, 4, 0, step).tolist() for step in range(4)] == [
        [1, 8, 9, 3],
        [7, 0, 6, 2],
        [5, 4, 9, 3],
        [5, 0, 1, 7],
    ]


lengths_ = st.lists(st.integers(1, 200), min_size=1, max_size=60).map(np.asarray)


@given(lengths_, st.integers(1, 8), st.integers(1, 6), seeds, st.integers(0, 5))
def test_pool_of_bucketed_batches_equals_random_batches(
    lengths: np.ndarray, batch_size: int, pool_batches: int, seed: int, pool: int
) -> None:
    bucketed = Bucketed(lengths, batch_size, seed, pool_batches)
    steps = range(pool * pool_batches, (pool + 1) * pool_batches)
    bucketed_batches = [bucketed.batch_indices(step) for step in steps]
    random_batches = [batch_indices(len(lengths), batch_size, seed, step) for step in steps]
    assert sorted(np.concatenate(bucketed_batches).tolist()) == sorted(
        np.concatenate(random_batches).tolist()
    )
    # Batches of a pool are sorted by length, so their lengths do not overlap.
    bounds = sorted((int(lengths[batch].min()), int(lengths[batch].max())) for batch in bucketed_batches)
    assert all(one[1] <= other[0] for one, other in pairwise(bounds))
    assert padding_share(lengths, bucketed_batches) <= padding_share(lengths, random_batches) + 1e-12
    new_order = Bucketed(lengths, batch_size, seed, pool_batches)
    assert new_order.batch_indices(steps[-1]).tolist() == bucketed_batches[-1].tolist()


def tokens_of(batch: np.ndarray, lengths: np.ndarray) -> int:
    return len(batch) * int(lengths[batch].max())


@given(lengths_, st.integers(1, 500), seeds, st.integers(0, 3))
@example(np.asarray([1, 1, 3, 3, 3]), 6, 0, 0)  # an incomplete batch with the lengths of a complete one
def test_token_batches_hold_as_many_examples_as_fit(
    lengths: np.ndarray, tokens_max: int, seed: int, epoch: int
) -> None:
    order = TokenBatches(lengths, tokens_max, seed)
    steps = range(epoch * len(order), (epoch + 1) * len(order))
    batches = [order.batch_indices(step) for step in steps]
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert all(len(batch) == 1 or tokens_of(batch, lengths) <= tokens_max for batch in batches)
    # Among batches with equal lengths, the incomplete one comes last.
    batches.sort(key=lambda one: (int(lengths[one].max()), int(lengths[one].min()), -len(one)))
    for batch, longer in pairwise(batches):
        assert lengths[batch].max() <= lengths[longer].min()
        assert (len(batch) + 1) * lengths[longer].min() > tokens_max, "another example must not fit"


def test_order_of_token_batches_is_unchanged() -> None:
    order = TokenBatches(np.asarray([3, 1, 2, 2, 5, 1, 9]), 6, 0)
    assert [order.batch_indices(step).tolist() for step in range(5)] == [[2, 0], [6], [4], [1, 5, 3], [2, 0]]


@given(lengths_, st.integers(1, 8), st.none() | st.integers(1, 400))
def test_evaluation_reads_every_example_once_and_long_ones_first(
    lengths: np.ndarray, batch_size: int, tokens_max: int | None
) -> None:
    batches = list(evaluation_batches(lengths, batch_size, tokens_max))
    indices = np.concatenate(batches)
    assert sorted(indices.tolist()) == list(range(len(lengths)))
    assert (np.diff(lengths[indices]) <= 0).all()
    for batch in batches:
        assert 0 < len(batch) <= batch_size
        assert tokens_max is None or len(batch) == 1 or len(batch) * lengths[batch].max() <= tokens_max
    repeated = evaluation_batches(lengths, batch_size, tokens_max)
    assert [batch.tolist() for batch in islice(repeated, len(batches))] == [
        batch.tolist() for batch in batches
    ]
