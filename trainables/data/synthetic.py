"""Create batches of random tokens, for ablation checks and cost estimates without a data set."""

import math

import torch
from jaxtyping import Int
from torch import Tensor

from trainables.streams import torch_stream
from trainables.types import NOT_ASKED, Batch, TaskShape

PAIR_LENGTH_MIN = 5
"""Least number of tokens of the longest row in a batch of pairs. A shortest row then has 3 tokens."""


def synthetic_batch(shape: TaskShape, n: int, length: int, seed: int) -> Batch:
    """Return `n` inputs of random tokens and labels on the CPU, padded to `length` tokens.

    The first row is full. The others have from half of `length` to `length` tokens, so that padding is
    tested. A pair has its separator in the middle. A task of positions has a label at each position. A
    decoded answer has the length `answer_length`. A task with step counts has one step per token, within its
    bound.
    """
    shortest = 1 if shape.separator_id is None else PAIR_LENGTH_MIN
    assert n > 0, f"a batch must hold at least one row, got {n=}"
    assert length >= shortest, f"a row must hold at least {shortest} token(s), got {length=}"
    stream = torch_stream(seed, "synthetic")
    lengths = torch.randint((length + 1) // 2, length + 1, (n,), generator=stream)
    lengths[0] = length
    allowed = sorted({*range(shape.vocabulary_size)} - {shape.pad_id, shape.separator_id})
    words = torch.tensor(allowed)[torch.randint(0, len(allowed), (n, length), generator=stream)]
    columns = torch.arange(length)
    if shape.separator_id is not None:
        words = torch.where(columns == (lengths // 2)[:, None], shape.separator_id, words)
    mask = columns < lengths[:, None]
    labels = _random_labels(shape, lengths, length, stream)
    steps = None if shape.steps_max is None else lengths.clamp(max=shape.steps_max)
    return Batch(words.masked_fill(~mask, shape.pad_id), mask, labels, steps)


def answer_length(shape: TaskShape, length: int) -> int:
    """Return the number of answer tokens, including the end token, for an input of `length` tokens.

    The longest input has the longest answer, and the length is proportional otherwise. It is at least 2, if
    training answers can be that long.
    """
    longest = shape.answer_length_max
    assert longest is not None, "only decoded answers have a length"
    return min(longest, max(2, math.ceil(longest * length / shape.length_max)))


def _random_labels(
    shape: TaskShape, lengths: Int[Tensor, " N"], length: int, stream: torch.Generator
) -> Int[Tensor, "N ..."]:
    n = lengths.shape[0]
    if shape.head == "positions":
        labels = torch.randint(0, shape.num_classes, (n, length), generator=stream)
        return labels.masked_fill(torch.arange(length) >= lengths[:, None], NOT_ASKED)
    if shape.head == "sequence":
        return _random_answers(shape, lengths, stream)
    return torch.randint(0, shape.num_classes, (n,), generator=stream)


def _random_answers(
    shape: TaskShape, lengths: Int[Tensor, " N"], stream: torch.Generator
) -> Int[Tensor, "N T"]:
    """Return random answers to inputs of `lengths` tokens."""
    assert shape.end_id is not None
    reserved = {shape.end_id, shape.pad_id} if shape.shared_vocabulary else {shape.end_id}
    allowed = torch.tensor(sorted({*range(shape.num_classes)} - reserved))
    end_places = torch.tensor([answer_length(shape, length) - 1 for length in lengths.tolist()])[:, None]
    columns = torch.arange(int(end_places.max()) + 1)
    random_indices = torch.randint(0, len(allowed), (len(end_places), len(columns)), generator=stream)
    labels = torch.where(columns == end_places, shape.end_id, allowed[random_indices])
    return labels.masked_fill(columns > end_places, NOT_ASKED)
