"""Find the more frequent of two tokens in a sequence of odd length."""

from itertools import product

import numpy as np
import pyarrow as pa

from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.task_protocol import SplitInfo
from trainables.types import TaskShape

VERSION = 1
LENGTHS = (5, 7, 9)
SHARES = {"train": 8, "valid": 1, "test": 1}
"""Tenths of all sequences, by split."""
PAD = 2


class Config(Settings):
    """Settings of the splits."""

    data_seed: int = 0
    """Seed of the random order of sequences."""


def shape(config):
    """Return the shape: two classes over two tokens and padding."""
    return TaskShape("classify", vocabulary_size=3, num_classes=2, pad_id=PAD, length_max=max(LENGTHS))


def splits(config):
    """Return train, valid and test, which are parts of one random order."""
    return tuple(
        SplitInfo(role, role, min(LENGTHS), max(LENGTHS), len(_split_sequences(config, role)))
        for role in SHARES
    )


def build(config, split):
    """Return a table with the columns `tokens` (uint8) and `label`."""
    sequences = _split_sequences(config, split)
    tokens = pa.array(sequences, type=pa.large_list(pa.uint8()))
    labels = [int(2 * sum(sequence) > len(sequence)) for sequence in sequences]
    return pa.table({"tokens": tokens, "label": pa.array(labels, type=pa.int16())})


def decode(tokens):
    """Return the text of tokens, e.g. `abba`."""
    return "".join("ab"[token] for token in tokens)


def _split_sequences(config, split):
    all_sequences = [sequence for length in LENGTHS for sequence in product(range(2), repeat=length)]
    keys = numpy_stream(config.data_seed, "majority").bit_generator.random_raw(len(all_sequences))
    order = np.argsort(keys, kind="stable")
    ends = dict(zip(SHARES, np.cumsum([*SHARES.values()]) * len(all_sequences) // 10, strict=True))
    start = ends[split] - SHARES[split] * len(all_sequences) // 10
    return [all_sequences[place] for place in order[start : ends[split]]]
