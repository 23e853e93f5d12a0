"""Define six algorithmic problems: queries, answers, and step counts of an algorithm.

Fan et al., "Looped Transformers for Length Generalization", sec. 6.1.1 and Table 2. Queries and answers are
lists of words. Binary numbers have their highest digit first, except in reversed answers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

Name = Literal["parity", "copy", "addition", "binary_sum", "multiplication", "unique_set"]
Words = list[str]
BITS = ("0", "1")
ALPHABET = tuple(str(number) for number in range(50))
FACTOR_DIGITS_MAX = 2
"""Greatest number of digits of the first factor in a multiplication; the least is one."""


class IntegerStream:
    """Integers from raw generator output, the only part of a generator that NumPy never changes."""

    def __init__(self, stream: np.random.Generator) -> None:
        self._bit_generator = stream.bit_generator

    def draw_integer(self, bound: int) -> int:
        """Return a uniform integer of 0 .. bound - 1."""
        return int(self._bit_generator.random_raw()) * bound >> 64

    def words(self, alphabet: tuple[str, ...], n: int) -> Words:
        """Return `n` independent words."""
        return [alphabet[self.draw_integer(len(alphabet))] for _ in range(n)]


@dataclass(frozen=True, slots=True)
class AlgorithmicProblem:
    """One of the six problems; `n` is the length that a model generalises over."""

    symbols: tuple[str, ...]
    """Words that answers are made of."""
    query: Callable[[IntegerStream, int], Words]
    """Function that returns a random query of length n."""
    answer: Callable[[Words], Words]
    answer_max: Callable[[Words], int]
    """Function that returns the number of words of the longest answer to a query of equal size."""
    words: Callable[[int], tuple[int, int]]
    """Function that returns the greatest number of words of a query of length n, and of its answer."""
    steps: Callable[[Words], int]
    """Function that returns T(n), the number of loop iterations that solve the query."""
    length_max: int
    """Greatest n in training."""
    interval: int
    """Number of training steps after which the curriculum increases n."""
    test_lengths: tuple[int, ...]
    steps_per_length: int = 1
    """Greatest T(n) / n."""


def _draw_sequence(alphabet: tuple[str, ...], integers: IntegerStream, n: int) -> Words:
    return integers.words(alphabet, n)


def _draw_sum(integers: IntegerStream, n: int) -> Words:
    return [*integers.words(BITS, n), "+", *integers.words(BITS, n)]


def _draw_product(integers: IntegerStream, n: int) -> Words:
    return [
        *integers.words(BITS, 1 + integers.draw_integer(FACTOR_DIGITS_MAX)),
        "x",
        *integers.words(BITS, n),
    ]


def _operands(query: Words, operator: str) -> tuple[Words, Words]:
    middle = query.index(operator)
    return query[:middle], query[middle + 1 :]


def _number(digits: Words) -> int:
    return int("".join(digits), 2)


def _add(query: Words) -> Words:
    first, second = _operands(query, "+")
    return list(f"{_number(first) + _number(second):0{len(first) + 1}b}")


def _multiply(query: Words) -> Words:
    first, second = _operands(query, "x")
    return list(f"{_number(first) * _number(second):0{len(first) + len(second)}b}"[::-1])


def _product_steps(query: Words) -> int:
    first, second = _operands(query, "x")
    return len(first) * len(second)


PROBLEMS: dict[Name, AlgorithmicProblem] = {
    "parity": AlgorithmicProblem(
        symbols=BITS,
        query=partial(_draw_sequence, BITS),
        answer=lambda query: [str(query.count("1") % 2)],
        answer_max=lambda _: 1,
        words=lambda n: (n, 1),
        steps=len,
        length_max=20,
        interval=500,
        test_lengths=(25, 30, 35, 40),
    ),
    "copy": AlgorithmicProblem(
        symbols=BITS,
        query=partial(_draw_sequence, BITS),
        answer=list,
        answer_max=len,
        words=lambda n: (n, n),
        steps=len,
        length_max=19,
        interval=1000,
        test_lengths=(25, 30, 35),
    ),
    "addition": AlgorithmicProblem(
        symbols=BITS,
        query=_draw_sum,
        answer=_add,
        answer_max=lambda query: len(query) // 2 + 1,
        words=lambda n: (2 * n + 1, n + 1),
        steps=lambda query: len(query) // 2,
        length_max=19,
        interval=1600,
        test_lengths=(22, 26, 30),
    ),
    "binary_sum": AlgorithmicProblem(
        symbols=BITS,
        query=partial(_draw_sequence, BITS),
        answer=lambda query: list(f"{query.count('1'):b}"[::-1]),
        answer_max=lambda query: len(query).bit_length(),
        words=lambda n: (n, n.bit_length()),
        steps=len,
        length_max=19,
        interval=500,
        test_lengths=(25, 30, 35, 40),
    ),
    "multiplication": AlgorithmicProblem(
        symbols=BITS,
        query=_draw_product,
        answer=_multiply,
        answer_max=lambda query: len(query) - 1,
        words=lambda n: (n + FACTOR_DIGITS_MAX + 1, n + FACTOR_DIGITS_MAX),
        steps=_product_steps,
        length_max=11,
        interval=500,
        test_lengths=(12, 14, 16),
        steps_per_length=FACTOR_DIGITS_MAX,
    ),
    "unique_set": AlgorithmicProblem(
        symbols=ALPHABET,
        query=partial(_draw_sequence, ALPHABET),
        answer=lambda query: list(dict.fromkeys(query)),
        answer_max=len,
        words=lambda n: (n, n),
        steps=len,
        length_max=19,
        interval=1000,
        test_lengths=(22, 26, 30),
    ),
}
