"""Solve the algorithmic problems by other algorithms than those of the task.

Parity, copy and addition use the looped programs of Fan et al., App. A, run for T(n) loops on the input of
the model; the other problems are solved digit by digit.
"""

from collections.abc import Callable

import numpy as np

from tests.oracles.solvers.rasp import Sequence, has_seen, repeat, select_value, shift_right

SMALL = {
    "name": "algorithms",
    "problem": "addition",
    "length_max": 12,
    "test_lengths": [20, 24],
    "valid_examples": 40,
    "test_examples": 30,
}
RESEEDED = SMALL | {"data_seed": 1}
VARIANTS = {
    "parity": {"problem": "parity"},
    "copy after pauses": {"problem": "copy", "pause_tokens": 3},
    "binary sum": {"problem": "binary_sum"},
    "multiplication, next token": {"problem": "multiplication", "form": "next_token"},
    "unique set": {"problem": "unique_set"},
    "next token after pauses": {"form": "next_token", "pause_tokens": 3},
}
CODES = {"0": 0, "1": 1, "+": 2, ">": 3, "#": 4, "<pause>": 5}
PLUS, END_OF_QUERY, END = CODES["+"], CODES[">"], CODES["#"]


def solve(text: str, problem: str = "addition", form: str = "full", pause_tokens: int = 0) -> list[int]:
    """Return the labels: 0 for the end, 1 for the symbol 0 and so on, -1 at places without a label."""
    words = text.split()
    start = words.index(">") + pause_tokens
    assert words[start - pause_tokens + 1 : start + 1] == ["<pause>"] * pause_tokens
    written, shown = answer(problem, words[: start - pause_tokens]), words[start + 1 :]
    if form == "next_token":
        assert shown == written, "the input must contain the true answer"
        written = [*written, "#"]
    else:
        assert set(shown) == {"#"}
        written = [*written, *"#" * (1 + len(shown) - len(written))]
    return [-1] * start + [0 if word == "#" else 1 + int(word) for word in written]


def answer(problem: str, query: list[str]) -> list[str]:
    """Return the words of the answer."""
    if problem in SOLVERS:
        return SOLVERS[problem](query)
    loops = query.index("+") + 1 if problem == "addition" else len(query)
    written = run(problem, [*query, ">", *"#" * (loops + 1)], loops)[len(query) :]
    return written[: written.index("#")]


def run(problem: str, words: list[str], loops: int) -> list[str]:
    """Return the words that the program of the problem has written at each place after so many loops."""
    names = {code: word for word, code in CODES.items()}
    sequence = np.asarray([CODES[word] for word in words])
    return [names[code] for code in trace(problem, sequence, loops)[-1].tolist()]


def trace(problem: str, sequence: Sequence, loops: int) -> list[Sequence]:
    """Return the symbols at each place after 0 .. `loops` loops."""
    ended = has_seen(sequence, END_OF_QUERY)
    ends = np.where(ended, END, 0)
    question = np.where(ended, 0, sequence)
    if problem == "parity":
        states = repeat(loops, parity_loop, np.zeros_like(sequence), question)
        # The answer is one bit for every number of loops.
        return [np.where(shift_right(ends) == END, END, answer) for answer, _ in states]
    if problem == "copy":
        states = repeat(loops, copy_loop, question, ends)
        return [np.where(ending == END, END, answer) for answer, ending in states]
    states = repeat(loops, addition_loop, *align_summands(sequence), ends)
    return [np.where(ending == END, END, answer) for answer, _, ending in states]


def parity_loop(answer: Sequence, question: Sequence) -> tuple[Sequence, ...]:
    moved = shift_right(question)
    return answer ^ moved, moved


def copy_loop(question: Sequence, ends: Sequence) -> tuple[Sequence, ...]:
    return shift_right(question), shift_right(ends)


def addition_loop(first: Sequence, second: Sequence, ends: Sequence) -> tuple[Sequence, ...]:
    """Move digits without carry by one place; carries stay, and meet the digit before in the next loop."""
    return shift_right(first ^ second), first & second, shift_right(ends)


def align_summands(sequence: Sequence) -> tuple[Sequence, Sequence]:
    """Return both numbers, aligned digit by digit at the places of the second."""
    after_plus, after_query = has_seen(sequence, PLUS), has_seen(sequence, END_OF_QUERY)
    in_first = ~after_plus
    in_second = after_plus & ~after_query & shift_right(after_plus.astype(int)).astype(bool)
    first_counts, second_counts = np.cumsum(in_first), np.cumsum(in_second)
    aligned = select_value(second_counts, first_counts, sequence, 0, first=True)
    return np.where(in_second, aligned, 0), np.where(in_second, sequence, 0)


def count_ones(bits: list[str]) -> list[str]:
    """Count the ones, lowest digit first: add each bit to a counter with carry."""
    counter: list[int] = [0]
    for bit in bits:
        carry, digit = int(bit), 0
        while carry:
            if digit == len(counter):
                counter.append(0)
            counter[digit], carry = counter[digit] ^ 1, counter[digit]
            digit += 1
    return [str(bit) for bit in counter]


def multiply(first: list[str], second: list[str]) -> list[str]:
    """Multiply by columns of partial products: lowest digit first, as many digits as both factors have."""
    columns = [0] * (len(first) + len(second))
    for i, first_digit in enumerate(reversed(first)):
        for j, second_digit in enumerate(reversed(second)):
            columns[i + j] += (first_digit, second_digit) == ("1", "1")
    for column_index in range(len(columns) - 1):
        columns[column_index + 1] += columns[column_index] // 2
        columns[column_index] %= 2
    return [str(column) for column in columns]


def first_occurrences(words: list[str]) -> list[str]:
    return [word for place, word in enumerate(words) if word not in words[:place]]


SOLVERS: dict[str, Callable[[list[str]], list[str]]] = {
    "binary_sum": count_ones,
    "multiplication": lambda query: multiply(query[: query.index("x")], query[query.index("x") + 1 :]),
    "unique_set": first_occurrences,
}
