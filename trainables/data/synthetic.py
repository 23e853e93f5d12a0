"""Batches of random tokens, for proofs and prices that need no data set."""

import torch

from trainables.streams import torch_stream
from trainables.types import Batch, TaskShape


def synthetic_batch(shape: TaskShape, n: int, length: int, seed: int) -> Batch:
    """`n` inputs of random tokens and labels on the CPU, padded to `length` tokens.

    The first is full; the others have between half and all of `length` tokens, so that padding is exercised.
    """
    assert min(n, length) > 0, f"a batch must hold at least one token, got {n=}, {length=}"
    stream = torch_stream(seed, "synthetic")
    lengths = torch.randint((length + 1) // 2, length + 1, (n,), generator=stream)
    lengths[0] = length
    words = torch.randint(0, shape.vocabulary_size - 1, (n, length), generator=stream)
    words += words >= shape.pad_id  # every id but the padding one
    mask = torch.arange(length) < lengths[:, None]
    labels = torch.randint(0, shape.num_classes, (n,), generator=stream)
    return Batch(words.masked_fill(~mask, shape.pad_id), mask, labels)
