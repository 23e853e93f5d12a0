"""Batches of random tokens, for proofs and prices that need no data set."""

import torch

from trainables.streams import torch_stream
from trainables.types import NOT_ASKED, Batch, TaskShape

LEAST_PAIR = 5
"""Tokens of a batch of pairs: the shortest row is half as long and holds two words and a separator."""


def synthetic_batch(shape: TaskShape, n: int, length: int, seed: int) -> Batch:
    """`n` inputs of random tokens and labels on the CPU, padded to `length` tokens.

    The first is full; the others have between half and all of `length` tokens, so that padding is exercised.
    A pair has its separator in the middle; a task of positions asks at every one.
    """
    least = 1 if shape.separator_id is None else LEAST_PAIR
    assert n > 0, f"a batch must hold at least one row, got {n=}"
    assert length >= least, f"a row must hold at least {least} token(s), got {length=}"
    stream = torch_stream(seed, "synthetic")
    lengths = torch.randint((length + 1) // 2, length + 1, (n,), generator=stream)
    lengths[0] = length
    allowed = sorted({*range(shape.vocabulary_size)} - {shape.pad_id, shape.separator_id})
    words = torch.tensor(allowed)[torch.randint(0, len(allowed), (n, length), generator=stream)]
    columns = torch.arange(length)
    if shape.separator_id is not None:
        words = torch.where(columns == (lengths // 2)[:, None], shape.separator_id, words)
    mask = columns < lengths[:, None]
    size = (n, length) if shape.head == "positions" else (n,)
    labels = torch.randint(0, shape.num_classes, size, generator=stream)
    if shape.head == "positions":
        labels = labels.masked_fill(~mask, NOT_ASKED)
    return Batch(words.masked_fill(~mask, shape.pad_id), mask, labels)
