"""Batches of random tokens, for proofs and prices that need no data set."""

import math

import torch
from jaxtyping import Int
from torch import Tensor

from trainables.streams import torch_stream
from trainables.types import NOT_ASKED, Batch, TaskShape

LEAST_PAIR = 5
"""Tokens of a batch of pairs: the shortest row is half as long and holds two words and a separator."""


def synthetic_batch(shape: TaskShape, n: int, length: int, seed: int) -> Batch:
    """`n` inputs of random tokens and labels on the CPU, padded to `length` tokens.

    The first is full; the others have between half and all of `length` tokens, so that padding is exercised.
    A pair has its separator in the middle; a task of positions has a label at each of them; a written answer
    is as long as `answer_length` says. A task that gives steps has one a token, within its bound.
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
    labels = _labels(shape, lengths, length, stream)
    steps = None if shape.steps_max is None else lengths.clamp(max=shape.steps_max)
    return Batch(words.masked_fill(~mask, shape.pad_id), mask, labels, steps)


def answer_length(shape: TaskShape, length: int) -> int:
    """Tokens of the answer, its end included, to an input of `length` tokens: longest to longest.

    At least a token and its end, where training has such answers.
    """
    longest = shape.answer_length_max
    assert longest is not None, "only written answers have a length"
    return min(longest, max(2, math.ceil(longest * length / shape.length_max)))


def _labels(
    shape: TaskShape, lengths: Int[Tensor, " N"], length: int, stream: torch.Generator
) -> Int[Tensor, "N ..."]:
    n = lengths.shape[0]
    if shape.head == "positions":
        labels = torch.randint(0, shape.num_classes, (n, length), generator=stream)
        return labels.masked_fill(torch.arange(length) >= lengths[:, None], NOT_ASKED)
    if shape.head == "sequence":
        return _written(shape, lengths, stream)
    return torch.randint(0, shape.num_classes, (n,), generator=stream)


def _written(shape: TaskShape, lengths: Int[Tensor, " N"], stream: torch.Generator) -> Int[Tensor, "N T"]:
    """Answers to inputs of `lengths` tokens."""
    assert shape.end_id is not None
    taken = {shape.end_id, shape.pad_id} if shape.shared_vocabulary else {shape.end_id}
    allowed = torch.tensor(sorted({*range(shape.num_classes)} - taken))
    last = torch.tensor([answer_length(shape, length) - 1 for length in lengths.tolist()])[:, None]
    columns = torch.arange(int(last.max()) + 1)
    drawn = torch.randint(0, len(allowed), (len(last), len(columns)), generator=stream)
    labels = torch.where(columns == last, shape.end_id, allowed[drawn])
    return labels.masked_fill(columns > last, NOT_ASKED)
