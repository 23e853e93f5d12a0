import torch
from hypothesis import given
from hypothesis import strategies as st

from trainables.data.synthetic import synthetic_batch
from trainables.types import NOT_ASKED, TaskShape


@given(st.integers(2, 30), st.integers(1, 6), st.integers(1, 40), st.integers(0, 2**40), st.data())
def test_synthetic_inputs_match_the_task(
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


@given(st.integers(1, 20), st.integers(1, 6), st.integers(1, 12), st.booleans(), st.integers(0, 2**40))
def test_synthetic_answers_end_once_within_the_longest_answer(
    length: int, n: int, longest: int, shared: bool, seed: int
) -> None:
    shape = TaskShape(
        "sequence",
        6,
        6,
        pad_id=0,
        length_max=20,
        end_id=4,
        answer_length_max=longest,
        shared_vocabulary=shared,
    )
    batch = synthetic_batch(shape, n, length, seed)
    assert ((batch.labels == 4).sum(1) == 1).all()
    lengths = (batch.labels == 4).int().argmax(1) + 1
    assert (lengths <= longest).all()
    assert (lengths >= min(2, longest)).all()
    by_input = lengths[batch.mask.sum(1).argsort()]
    assert (by_input.diff() >= 0).all(), "longer inputs must not have shorter answers"
    assert length < 20 or lengths[0] == longest
    assert torch.equal(batch.labels != NOT_ASKED, torch.arange(batch.labels.shape[1]) < lengths[:, None])
    assert not (shared and (batch.labels == 0).any())
