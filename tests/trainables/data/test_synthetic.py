import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainables.data.synthetic import synthetic_batch
from trainables.types import TaskShape


@given(st.integers(2, 30), st.integers(1, 6), st.integers(1, 40), st.integers(0, 2**40), st.data())
def test_random_inputs_are_like_those_of_the_task(
    vocabulary: int, n: int, length: int, seed: int, data: st.DataObject
) -> None:
    pad = data.draw(st.integers(0, vocabulary - 1))
    shape = TaskShape("classify", vocabulary, 10, pad, length)
    batch = synthetic_batch(shape, n, length, seed)
    assert batch.tokens.shape == (n, length)
    assert torch.equal(batch.mask, batch.tokens != pad)
    assert batch.tokens.min() >= 0
    assert batch.tokens.max() < vocabulary
    lengths = batch.mask.sum(dim=1)
    assert lengths[0] == length
    assert lengths.min() >= length / 2
    assert torch.equal(batch.mask, torch.arange(length) < lengths[:, None])
    assert 0 <= batch.labels.min() <= batch.labels.max() < 10
    assert torch.equal(synthetic_batch(shape, n, length, seed).tokens, batch.tokens)


def test_every_word_comes_up_but_padding() -> None:
    batch = synthetic_batch(TaskShape("classify", 5, 2, 2, 100), 20, 100, seed=0)
    assert set(batch.tokens[batch.mask].tolist()) == {0, 1, 3, 4}
    assert set(batch.labels.tolist()) == {0, 1}


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(AssertionError, match="at least one token, got n=2, length=0"):
        synthetic_batch(TaskShape("classify", 5, 2, 2, 100), 2, 0, seed=0)
