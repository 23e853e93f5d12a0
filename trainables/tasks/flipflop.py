"""Flip-flop language modelling: predict the bit that was last written.

Liu et al. 2023, "Exposing Attention Glitches with Flip-Flop Language Modeling": a string alternates between
an instruction (w write, r read, i ignore) and a bit. The bit after r is the last written bit; other bits are
random. The first instruction is w, the last r. Each other instruction is i with probability p, else w or r.
Only the bits after r are predicted, from earlier tokens. Sizes and distributions of the splits: Ray Chowdhury
and Caragea, "Investigating Recurrent Transformers with Dynamic Halt", App. A, and their released code.

Metrics: `accuracy` over all reads, which steers the search, and `accuracy_last` over the last read of each
string, as in the paper's tables.

Departures: padding and start have separate ids (the released code gives them the id of i).
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from typing import Annotated, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator, Field, model_validator

from trainables.data.draws import find_new
from trainables.data.progress import report
from trainables.data.ragged import list_column
from trainables.field_effects import AffectsSplits
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.task_protocol import SplitInfo
from trainables.types import NOT_ASKED, TaskShape

VERSION = 2
HEADLINE = "accuracy_last"
TRAINING_ONLY = frozenset({"train_examples"})
WORDS = ("w", "i", "r", "0", "1", "<start>", "<pad>")
"""Words by token id."""
WRITE, IGNORE, READ, ZERO, START, PAD = (
    WORDS.index(word) for word in ("w", "i", "r", "0", "<start>", "<pad>")
)
ROUND_TOKENS = 2_000_000
"""Number of tokens per round of draws. It bounds memory; another value would change the data."""


def _check_even(length: int) -> int:
    if length % 2:
        raise ValueError(
            f"a string alternates between instructions and bits: its length must be even, got {length}"
        )
    return length


Length = Annotated[int, Field(ge=64, le=16_384), AfterValidator(_check_even)]
Share = Annotated[float, Field(ge=0, le=0.99)]


class Config(Settings):
    """Settings of the task. The defaults are the published task."""

    name: Literal["flipflop"] = "flipflop"
    length: Length = 512
    """Length of training strings, in instructions and bits."""
    long_length: Length = 1024
    """Length of the longer test strings."""
    ignore: Share = 0.8
    """Probability of the instruction i in training strings, apart from the first and last instruction."""
    ignore_few: Share = 0.1
    """Probability of the instruction i in tests with many reads and writes."""
    ignore_many: Share = 0.98
    """Probability of the instruction i in tests in which the last write is far away."""
    train_examples: int = Field(default=160_000, ge=1)
    """Number of training strings."""
    valid_examples: int = Field(default=1_000, ge=1)
    """Number of validation strings of each of the seven tested distributions."""
    test_examples: Annotated[int, AffectsSplits("normal", "length-*")] = Field(default=10_000, ge=1)
    """Number of strings of each test split."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of the generated strings, independent of training seeds: trials with different training seeds
    share one data set."""

    @model_validator(mode="after")
    def _laws_differ(self) -> Self:
        if self.long_length <= self.length:
            raise ValueError(
                f"long_length must exceed length, got length={self.length}, long_length={self.long_length}"
            )
        if not self.ignore_few < self.ignore < self.ignore_many:
            raise ValueError(
                "ignore must lie between ignore_few and ignore_many, got "
                f"{self.ignore_few}, {self.ignore}, {self.ignore_many}"
            )
        return self


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a split: a number of strings from one distribution."""

    length: int
    ignore: float
    examples: int


def _parts(config: Config) -> dict[str, tuple[_Part, ...]]:
    """Return the parts of each split."""
    ignores = (config.ignore_few, config.ignore, config.ignore_many)
    laws = {
        "normal": (config.length, config.ignore),
        **{
            f"length-{length}-ignore-{ignore}": (length, ignore)
            for length in (config.length, config.long_length)
            for ignore in ignores
        },
    }
    return {
        "train": (_Part(config.length, config.ignore, config.train_examples),),
        "valid": tuple(_Part(*law, config.valid_examples) for law in laws.values()),
        **{name: (_Part(*law, config.test_examples),) for name, law in laws.items()},
    }


def shape(config: Config) -> TaskShape:
    """Return a shape with two classes at each read, for causal models."""
    return TaskShape(
        head="positions",
        vocabulary_size=len(WORDS),
        num_classes=2,
        pad_id=PAD,
        length_max=config.length,
        causal=True,
    )


def token_classes(config: Config) -> tuple[str, ...]:  # noqa: ARG001 the same for all settings
    """Return the class of each token: instruction, bit, or other."""
    class_names = {"w": "write", "i": "ignore", "r": "read", "0": "bit", "1": "bit"}
    return tuple(class_names.get(word, "other") for word in WORDS)


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """Return train, valid, normal and one split per length and share of i, e.g. length-1024-ignore-0.98."""
    roles: dict[str, Literal["train", "valid"]] = {"train": "train", "valid": "valid"}
    return tuple(
        SplitInfo(
            name,
            roles.get(name, "test"),
            min(part.length for part in parts),
            max(part.length for part in parts),
            sum(part.examples for part in parts),
        )
        for name, parts in _parts(config).items()
    )


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens` (uint8) and `targets` (int8)."""
    inputs, targets, lengths = [], [], []
    for strings in _strings(config, split):
        tokens = np.concatenate([np.full_like(strings[:, :1], START), strings[:, :-1]], axis=1)
        answers = np.where(tokens == READ, strings.astype(np.int8) - ZERO, NOT_ASKED)
        inputs.append(tokens.ravel())
        targets.append(answers.astype(np.int8).ravel())
        lengths += [strings.shape[1]] * len(strings)
    offsets = np.cumsum([0, *lengths])
    columns = {"tokens": inputs, "targets": targets}
    return pa.table({name: list_column(offsets, np.concatenate(rows)) for name, rows in columns.items()})


def decode(tokens: Sequence[int]) -> str:
    """Return readable text, e.g. `<start> w 0 i 1 r`, the input for predicting the last bit."""
    return " ".join(WORDS[token] for token in tokens)


@lru_cache(maxsize=1)
def _strings(config: Config, split: str) -> tuple[np.ndarray, ...]:
    """Return the strings of each part of a split, without duplicates, as uint8 arrays (examples, length).

    Training strings come last, so that tests do not depend on their number.
    """
    parts = _parts(config)
    order = [*(name for name in parts if name != "train"), "train"]
    lengths = {part.length for part in parts[split]}
    used_rows: set[Hashable] = set()
    for earlier_split in order[: order.index(split)]:
        if any(part.length in lengths for part in parts[earlier_split]):
            used_rows |= _string_hashes(config, earlier_split)
    return tuple(
        _unique(
            part,
            used_rows,
            (
                numpy_stream(config.data_seed, "flipflop", split, number, round_index)
                for round_index in count()
            ),
        )
        for number, part in enumerate(parts[split])
    )


@lru_cache(maxsize=16)
def _string_hashes(config: Config, split: str) -> frozenset[bytes]:
    """Return 8-byte hashes of a split's strings; a hash collision only excludes the later string."""
    return frozenset(
        string_hash for strings in _strings(config, split) for string_hash in _row_hashes(strings)
    )


def _row_hashes(strings: np.ndarray) -> Iterator[bytes]:
    return (blake2b(row.data, digest_size=8).digest() for row in strings)


def _unique(part: _Part, seen: set[Hashable], streams: Iterator[np.random.Generator]) -> np.ndarray:
    """Return the first strings of the part's distribution that are not in `seen`."""
    rows = np.empty((part.examples, part.length), dtype=np.uint8)
    count = 0
    while count < part.examples:
        candidates = _draw(next(streams), part, max(1, min(part.examples, ROUND_TOKENS // part.length)))
        unseen = candidates[find_new(_row_hashes(candidates), seen, part.examples - count)]
        rows[count : count + len(unseen)] = unseen
        count += len(unseen)
        report("strings", count, part.examples)
    return rows


def _draw(stream: np.random.Generator, part: _Part, n: int) -> np.ndarray:
    """Return `n` random strings."""
    raw_numbers = stream.bit_generator.random_raw(n * part.length // 2).reshape(n, part.length // 2)
    uniform_numbers = (raw_numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53
    write = part.ignore + (1 - part.ignore) / 2
    instructions = np.where(
        uniform_numbers < part.ignore, IGNORE, np.where(uniform_numbers < write, WRITE, READ)
    ).astype(np.uint8)
    instructions[:, 0], instructions[:, -1] = WRITE, READ
    bits = (raw_numbers & np.uint64(1)).astype(
        np.uint8
    )  # the lowest of the eleven bits that `uniform_numbers` does not use
    columns = np.arange(part.length // 2)
    last_write = np.maximum.accumulate(np.where(instructions == WRITE, columns, 0), axis=1)
    bits = np.where(instructions == READ, np.take_along_axis(bits, last_write, axis=1), bits)
    return np.stack([instructions, ZERO + bits], axis=2).reshape(n, part.length).astype(np.uint8)
