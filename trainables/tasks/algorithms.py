"""Parity, copy, addition, binary sum, multiplication, unique set: algorithms for looped models.

Fan et al., "Looped Transformers for Length Generalization", sec. 3, 4 and 6.1. Every training batch is newly
drawn, with the length n uniform up to the present limit of the curriculum. Each test split has one length. A
sample includes T(n), the number of loops that an algorithm needs. In full-output form the input is the query,
`>` and a `#` for each word of the longest answer. The answer is predicted from `>` on and filled up with `#`.
In next-token form the answer follows `>` in the input, and each of its words is predicted one position
earlier.

`accuracy_whole` is the exact match of the published figures. In next-token form it is computed with the
correct answer as input. It equals that of greedy decoding, because the inputs are the same as long as all
words are correct.

Departures: the number of `#` after an answer, the test lengths and the start of the curriculum are not
published. Here the curriculum begins with the shortest queries and increases the length by one after each
interval.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from trainables.data.progress import report_each
from trainables.data.split import Split
from trainables.field_effects import AffectsForm, AffectsSplits, AffectsSteps
from trainables.generators.problems import ALPHABET, PROBLEMS, AlgorithmicProblem, IntegerStream, Name, Words
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.task_protocol import SplitInfo
from trainables.types import NOT_ASKED, Batch, TaskShape

VERSION = 1
HEADLINE = "accuracy_whole"
TRAINING_ONLY = frozenset({"interval"})
END_OF_ANSWER, END_OF_QUERY, PAUSE, PADDING = "#", ">", "<pause>", "<pad>"
WORDS = (END_OF_ANSWER, *ALPHABET, END_OF_QUERY, "+", "x", PAUSE, PADDING)
"""Words by token id, the same for all problems; words of answers come first."""
IDS = {word: index for index, word in enumerate(WORDS)}


def _as_tuple(value: object) -> object:
    """Return lists as tuples; YAML and JSON have only lists."""
    return tuple(value) if isinstance(value, list) else value


def _test_name(length: int) -> str:
    return f"length-{length}"


class Config(Settings):
    """Settings of the task. The defaults are the published settings for the problem parity."""

    name: Literal["algorithms"] = "algorithms"
    problem: Name = "parity"
    """Problem that the model computes."""
    form: Annotated[Literal["full", "next_token"], AffectsForm()] = "full"
    """`full`: the model predicts all tokens of the answer at once. `next_token`: the model predicts one token
    after the other, which needs a causal model."""
    pause_tokens: Annotated[int, AffectsForm()] = Field(default=0, ge=0, le=1000)
    """Number of empty tokens between query and answer; 20 in the published comparison."""
    length_max: PositiveInt | None = None
    """Greatest n in training. Default: 20 for parity, 11 for multiplication, 19 for the other problems."""
    interval: int | None = Field(default=None, ge=0)
    """Number of training steps after which the curriculum increases the greatest n by one, from 1. With 0
    there is no curriculum. Default: 500 for parity, binary sum and multiplication, 1000 for copy and unique
    set, 1600 for addition."""
    carry_step: Annotated[bool, AffectsSteps()] = False
    """Addition only: use T = n + 1 steps, as its n-RASP-L program needs, instead of the n steps of the
    published runs."""
    test_lengths: Annotated[
        Annotated[tuple[PositiveInt, ...] | None, BeforeValidator(_as_tuple)],
        AffectsSplits("length-*", each=_test_name),
    ] = None
    """Values of n. Each value gives a test split `length-<n>`. The default values exceed those in training.

    Lengths up to `length_max` test on the training distribution. There are few different short queries, so
    training has seen most of them.
    """
    valid_examples: int = Field(default=1_000, ge=1)
    """Number of validation samples. Their n is uniform from 1 to `length_max`."""
    test_examples: Annotated[int, AffectsSplits("length-*")] = Field(default=6_400, ge=1)
    """Number of samples of each test split."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of the generated samples of all splits. Training samples also depend on the training seed."""

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        lengths = _test_lengths(self)
        if len(set(lengths)) < len(lengths):
            raise ValueError(f"test_lengths must differ, got {list(lengths)}")
        if self.carry_step and self.problem != "addition":
            raise ValueError(f"carry_step needs problem 'addition', got {self.problem!r}: drop it")
        return self


def _problem(config: Config) -> AlgorithmicProblem:
    return PROBLEMS[config.problem]


def _length_max(config: Config) -> int:
    return config.length_max or _problem(config).length_max


def _test_lengths(config: Config) -> tuple[int, ...]:
    if config.test_lengths is not None:
        return config.test_lengths
    # Published lengths, shifted if the training lengths exceed the published ones.
    extra_length = _length_max(config) - _problem(config).length_max
    return tuple(length + max(0, extra_length) for length in _problem(config).test_lengths)


def shape(config: Config) -> TaskShape:
    """Return a shape with one class per answer symbol and one for the end of the answer."""
    longest = max((_length_max(config), *_test_lengths(config)))
    return TaskShape(
        head="positions",
        vocabulary_size=len(WORDS),
        num_classes=1 + len(_problem(config).symbols),
        pad_id=IDS[PADDING],
        length_max=_input_lengths(config, 1, _length_max(config))[1],
        causal=config.form == "next_token",
        steps_max=longest * _problem(config).steps_per_length + config.carry_step,
    )


def label_names(config: Config) -> tuple[str, ...]:
    """Return the name of each class: the end of an answer, then the answer symbols."""
    return WORDS[: shape(config).num_classes]


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """Return train (never stored), valid, and one split per value of `test_lengths`, e.g. length-30."""
    train_lengths = _input_lengths(config, 1, _length_max(config))
    tests = (
        SplitInfo(_test_name(n), "test", *_input_lengths(config, n, n), config.test_examples)
        for n in _test_lengths(config)
    )
    return (
        SplitInfo("train", "train", *train_lengths, None, streamed=True),
        SplitInfo("valid", "valid", *train_lengths, config.valid_examples),
        *tests,
    )


def _input_lengths(config: Config, shortest: int, longest: int) -> tuple[int, int]:
    """Return the bounds of input tokens for queries with a length from `shortest` to `longest`."""
    length_with_pauses = 1 + config.pause_tokens
    return shortest + length_with_pauses + 1, sum(_problem(config).words(longest)) + length_with_pauses


def settled(config: Config) -> Config:
    """Return settings with the published lengths and curriculum filled in, and test lengths in order."""
    return config.model_copy(
        update={
            "length_max": _length_max(config),
            "interval": _interval(config),
            "test_lengths": tuple(sorted(_test_lengths(config))),
        }
    )


def _interval(config: Config) -> int:
    return _problem(config).interval if config.interval is None else config.interval


def max_query_length(config: Config, step: int) -> int:
    """Return the greatest n that the curriculum allows at optimiser step number `step`, counted from 0."""
    interval = _interval(config)
    length_at_step = 1 + step // interval if interval else _length_max(config)
    return min(length_at_step, _length_max(config))


def stream(config: Config, batch_size: int, seed: int, step: int) -> Batch:
    """Return the training batch of optimiser step number `step`, a function of settings, seed and step alone.

    Forms and pauses do not change the queries, so arms that differ only in them receive the same queries.
    """
    integers = IntegerStream(numpy_stream(seed, "algorithms", config.data_seed, "train", step))
    table = _table(config, _uniform_lengths(integers, max_query_length(config, step), batch_size), integers)
    return Split(table, shape(config).pad_id, "").batch(np.arange(batch_size))


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens`, `targets` and `steps`."""
    tests = {_test_name(n): n for n in _test_lengths(config)}
    integers = IntegerStream(numpy_stream(config.data_seed, "algorithms", split))
    if split == "valid":
        examples = config.valid_examples
        lengths: Iterable[int] = _uniform_lengths(integers, _length_max(config), examples)
    else:
        examples = config.test_examples
        lengths = [tests[split]] * examples
    return _table(config, report_each(lengths, "samples", examples), integers)


def _uniform_lengths(integers: IntegerStream, longest: int, n: int) -> Iterator[int]:
    return (1 + integers.draw_integer(longest) for _ in range(n))


def _table(config: Config, lengths: Iterable[int], integers: IntegerStream) -> pa.Table:
    """Return a table with one sample for each length."""
    problem, write = _problem(config), _FORMS[config.form]
    tokens, targets, steps = [], [], []
    for n in lengths:
        query = problem.query(integers, n)
        inputs, answer = write(problem, query, [END_OF_QUERY, *[PAUSE] * config.pause_tokens])
        tokens.append([IDS[word] for word in inputs])
        targets.append([NOT_ASKED] * (len(inputs) - len(answer)) + [IDS[word] for word in answer])
        steps.append(problem.steps(query) + config.carry_step)
    return pa.table(
        {
            "tokens": pa.array(tokens, type=pa.large_list(pa.uint8())),
            "targets": pa.array(targets, type=pa.large_list(pa.int8())),
            "steps": pa.array(steps, type=pa.int32()),
        }
    )


def _with_prompt(problem: AlgorithmicProblem, query: Words, prompt: Words) -> tuple[Words, Words]:
    """Return the words of the input, and the targets of its last positions, from the end of `prompt` on."""
    answer, answer_room = problem.answer(query), problem.answer_max(query)
    return [*query, *prompt, *[END_OF_ANSWER] * answer_room], answer + [END_OF_ANSWER] * (
        answer_room + 1 - len(answer)
    )


def _next_token(problem: AlgorithmicProblem, query: Words, prompt: Words) -> tuple[Words, Words]:
    answer = problem.answer(query)
    return [*query, *prompt, *answer], [*answer, END_OF_ANSWER]


_FORMS: dict[str, Callable[[AlgorithmicProblem, Words, Words], tuple[Words, Words]]] = {
    "full": _with_prompt,
    "next_token": _next_token,
}


def decode(tokens: Sequence[int]) -> str:
    """Return readable text, e.g. `1 0 + 1 1 > # # #`."""
    return " ".join(WORDS[token] for token in tokens)
