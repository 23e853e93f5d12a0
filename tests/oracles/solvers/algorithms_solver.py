"""Answers to the algorithmic problems by other algorithms than the task's.

Parity, copy and addition by the looped programs of Fan et al., App. A, run for T(n) loops on the very input
of the model; the others digit by digit.
"""

from collections.abc import Callable

import numpy as np

from tests.oracles.solvers.rasp import Sequence, has_seen, look, repeat, shift_right

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
    """Labels: 0 for the end, 1 for the symbol 0 and so on, -1 where none is."""
    words = text.split()
    start = words.index(">") + pause_tokens
    assert words[start - pause_tokens + 1 : start + 1] == ["<pause>"] * pause_tokens
    written, given = answer(problem, words[: start - pause_tokens]), words[start + 1 :]
    if form == "next_token":
        assert given == written, "the true answer is read as it is written"
        written = [*written, "#"]
    else:
        assert set(given) == {"#"}
        written = [*written, *"#" * (1 + len(given) - len(written))]
    return [-1] * start + [0 if word == "#" else 1 + int(word) for word in written]


def answer(problem: str, query: list[str]) -> list[str]:
    """The words of the answer."""
    if problem in SOLVERS:
        return SOLVERS[problem](query)
    loops = query.index("+") + 1 if problem == "addition" else len(query)
    written = run(problem, [*query, ">", *"#" * (loops + 1)], loops)[len(query) :]
    return written[: written.index("#")]


def run(problem: str, words: list[str], loops: int) -> list[str]:
    """What the program of the problem has written at each place after so many loops."""
    names = {code: word for word, code in CODES.items()}
    sequence = np.asarray([CODES[word] for word in words])
    return [names[code] for code in trace(problem, sequence, loops)[-1].tolist()]


def trace(problem: str, sequence: Sequence, loops: int) -> list[Sequence]:
    """What stands at each place after 0 .. `loops` loops."""
    ended = has_seen(sequence, END_OF_QUERY)
    ends = np.where(ended, END, 0)
    question = np.where(ended, 0, sequence)
    if problem == "parity":
        states = repeat(loops, parity_loop, np.zeros_like(sequence), question)
        # One bit is the answer, whatever the number of loops.
        return [np.where(shift_right(ends) == END, END, answer) for answer, _ in states]
    if problem == "copy":
        states = repeat(loops, copy_loop, question, ends)
        return [np.where(ending == END, END, answer) for answer, ending in states]
    states = repeat(loops, addition_loop, *summands(sequence), ends)
    return [np.where(ending == END, END, answer) for answer, _, ending in states]


def parity_loop(answer: Sequence, question: Sequence) -> tuple[Sequence, ...]:
    moved = shift_right(question)
    return answer ^ moved, moved


def copy_loop(question: Sequence, ends: Sequence) -> tuple[Sequence, ...]:
    return shift_right(question), shift_right(ends)


def addition_loop(first: Sequence, second: Sequence, ends: Sequence) -> tuple[Sequence, ...]:
    """Digits without carry move on by one, carries stay: next time they meet the digit before."""
    return shift_right(first ^ second), first & second, shift_right(ends)


def summands(sequence: Sequence) -> tuple[Sequence, Sequence]:
    """Both numbers, digit over digit at the places of the second."""
    behind_plus, behind_query = has_seen(sequence, PLUS), has_seen(sequence, END_OF_QUERY)
    in_first = ~behind_plus
    in_second = behind_plus & ~behind_query & shift_right(behind_plus.astype(int)).astype(bool)
    first_counts, second_counts = np.cumsum(in_first), np.cumsum(in_second)
    aligned = look(second_counts, first_counts, sequence, 0, first=True)
    return np.where(in_second, aligned, 0), np.where(in_second, sequence, 0)


def counted(bits: list[str]) -> list[str]:
    """How many ones, lowest digit first: each bit in turn is added to a counter that carries."""
    counter: list[int] = [0]
    for bit in bits:
        carry, place = int(bit), 0
        while carry:
            if place == len(counter):
                counter.append(0)
            counter[place], carry = counter[place] ^ 1, counter[place]
            place += 1
    return [str(bit) for bit in counter]


def multiplied(first: list[str], second: list[str]) -> list[str]:
    """Lowest digit first, as many digits as both factors have: by columns of partial products."""
    columns = [0] * (len(first) + len(second))
    for i, one in enumerate(reversed(first)):
        for j, other in enumerate(reversed(second)):
            columns[i + j] += (one, other) == ("1", "1")
    for place in range(len(columns) - 1):
        columns[place + 1] += columns[place] // 2
        columns[place] %= 2
    return [str(column) for column in columns]


def first_occurrences(words: list[str]) -> list[str]:
    return [word for place, word in enumerate(words) if word not in words[:place]]


SOLVERS: dict[str, Callable[[list[str]], list[str]]] = {
    "binary_sum": counted,
    "multiplication": lambda query: multiplied(query[: query.index("x")], query[query.index("x") + 1 :]),
    "unique_set": first_occurrences,
}
