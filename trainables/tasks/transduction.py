"""Transduction: output a short string unchanged, reversed, or sorted.

A generated stand-in for translation: answers of variable length, generated token by token, that a small
encoder-decoder learns in minutes. The task is not from a paper. Tests with strings longer than those of
training measure generalisation beyond the training data, as the tests of CFQ do.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from itertools import count
from typing import Annotated, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from trainables.data.draws import draw_integers, find_new
from trainables.field_effects import AffectsSplits
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.task_protocol import SplitInfo
from trainables.types import TaskShape

VERSION = 2
TRAINING_ONLY = frozenset({"train_examples"})
PADDING, END = "<pad>", "<end>"
MARKS = (PADDING, END)
"""Tokens with ids 0 and 1; the symbols follow in sorting order."""
SYMBOLS_MAX = 256 - len(MARKS)
SURPLUS_FACTOR = 2
"""Factor by which possible strings must outnumber requested ones, so that drawing new ones is fast."""
String = tuple[int, ...]
FUNCTIONS: dict[str, Callable[[String], String]] = {
    "copy": lambda string: string,
    "reverse": lambda string: string[::-1],
    "sort": lambda string: tuple(sorted(string)),
}


def _as_tuple(value: object) -> object:
    """Return lists as tuples; YAML and JSON have only lists."""
    return tuple(value) if isinstance(value, list) else value


def _test_name(length: int) -> str:
    return f"length-{length}"


class Config(Settings):
    """Answers are functions of strings of independent symbols."""

    name: Literal["transduction"] = "transduction"
    function: Literal["copy", "reverse", "sort"] = "reverse"
    """Function whose value the model writes."""
    symbols: int = Field(default=8, ge=2, le=SYMBOLS_MAX)
    """Number of different symbols."""
    length_min: PositiveInt = 3
    """Length of the shortest strings."""
    length_max: PositiveInt = 12
    """Length of the longest strings in training; all lengths from `length_min` on are equally frequent."""
    test_lengths: Annotated[
        Annotated[tuple[PositiveInt, ...], BeforeValidator(_as_tuple)],
        AffectsSplits("length-*", each=_test_name),
    ] = (16, 24)
    """Lengths greater than `length_max`. Each length gives a test split `length-<n>`."""
    train_examples: PositiveInt = 20_000
    """Number of training strings. All strings differ, and none is in another split."""
    valid_examples: PositiveInt = 1_000
    """Number of validation strings."""
    test_examples: PositiveInt = 1_000
    """Number of strings of each test split. No string is in another split."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of the generated strings, independent of training seeds: trials with different training seeds
    share one data set."""

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        if self.length_min > self.length_max:
            raise ValueError(
                f"length_min must be at most length_max, got {self.length_min} and {self.length_max}"
            )
        short_lengths = [length for length in self.test_lengths if length <= self.length_max]
        if short_lengths or len(set(self.test_lengths)) < len(self.test_lengths):
            raise ValueError(
                f"test_lengths must differ and exceed length_max={self.length_max}, so that no string is "
                f"trained on, got {list(self.test_lengths)}"
            )
        pool = self.train_examples + self.valid_examples + self.test_examples
        _check_num_strings(self.symbols, self.length_min, self.length_max, pool)
        for length in self.test_lengths:
            _check_num_strings(self.symbols, length, length, self.test_examples)
        return self


def _check_num_strings(symbols: int, shortest: int, longest: int, examples: int) -> None:
    num_strings = sum(symbols**length for length in range(shortest, longest + 1))
    if num_strings < SURPLUS_FACTOR * examples:
        raise ValueError(
            f"there must be {SURPLUS_FACTOR} times as many possible strings as examples, got {num_strings} "
            f"with {symbols} symbols and "
            f"lengths {shortest} to {longest} for {examples} examples; use more symbols, longer strings or "
            "fewer examples"
        )


def settled(config: Config) -> Config:
    """Return settings with test lengths in order."""
    return config.model_copy(update={"test_lengths": tuple(sorted(config.test_lengths))})


def shape(config: Config) -> TaskShape:
    """Return a shape with equal ids for input and output symbols."""
    size = len(MARKS) + config.symbols
    return TaskShape(
        head="sequence",
        vocabulary_size=size,
        num_classes=size,
        pad_id=MARKS.index(PADDING),
        length_max=config.length_max,
        end_id=MARKS.index(END),
        answer_length_max=config.length_max + 1,
        shared_vocabulary=True,
    )


def label_names(config: Config) -> tuple[str, ...]:
    """Return the names of answer tokens, which are those of input tokens."""
    return tuple(decode([token]) for token in range(shape(config).num_classes))


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """Return train, valid, near-iid with training lengths, and one split per test length, e.g. length-16."""
    lengths = config.length_min, config.length_max
    test_infos = (SplitInfo(_test_name(n), "test", n, n, config.test_examples) for n in config.test_lengths)
    return (
        SplitInfo("train", "train", *lengths, config.train_examples),
        SplitInfo("valid", "valid", *lengths, config.valid_examples),
        SplitInfo("near-iid", "test", *lengths, config.test_examples),
        *test_infos,
    )


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens` and `answer` (uint8)."""
    strings = _strings(config, split)
    kind = pa.large_list(pa.uint8())
    answers = [FUNCTIONS[config.function](string) for string in strings]
    return pa.table({"tokens": pa.array(strings, type=kind), "answer": pa.array(answers, type=kind)})


def decode(tokens: Sequence[int]) -> str:
    """Return readable text, e.g. `s3 s1 s1`."""
    return " ".join(MARKS[token] if token < len(MARKS) else f"s{token - len(MARKS)}" for token in tokens)


@lru_cache(maxsize=8)
def _strings(config: Config, split: str) -> tuple[String, ...]:
    """Return the strings of a split, which occur in no other split and are the same for every function.

    Training strings are drawn last, so that tests do not depend on their number.
    """
    infos = {info.name: info for info in splits(config)}
    info = infos[split]
    order = [*(name for name in infos if name != "train"), "train"]
    earlier_splits = order[: order.index(split)]
    used_strings: set[Hashable] = set().union(
        *(_strings(config, name) for name in earlier_splits if infos[name].length_max == info.length_max)
    )
    assert info.examples is not None, "every split has a number of examples"
    streams = (numpy_stream(config.data_seed, "transduction", split, round_index) for round_index in count())
    strings: list[String] = []
    while num_missing := info.examples - len(strings):
        candidates = _draw(next(streams), config.symbols, info, info.examples)
        strings += [candidates[index] for index in find_new(candidates, used_strings, num_missing)]
    return tuple(strings)


def _draw(stream: np.random.Generator, symbols: int, info: SplitInfo, n: int) -> list[String]:
    """Return `n` random strings with lengths uniform from shortest to longest."""
    lengths = info.length_min + draw_integers(stream, n, info.length_max - info.length_min + 1)
    symbols_drawn = len(MARKS) + draw_integers(stream, int(lengths.sum()), symbols)
    parts = np.split(symbols_drawn, np.cumsum(lengths)[:-1])
    return [tuple(part.tolist()) for part in parts]
