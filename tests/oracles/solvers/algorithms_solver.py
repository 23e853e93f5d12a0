"""Solve the algorithmic problems digit by digit."""

from collections.abc import Callable

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


def solve(text: str, problem: str = "addition", form: str = "full", pause_tokens: int = 0) -> list[int]:
    """Return the labels: 0 for the end, 1 for the symbol 0 and so on, -1 at places without a label."""
    words = text.split()
    start = words.index(">") + pause_tokens
    assert words[start - pause_tokens + 1 : start + 1] == ["<pause>"] * pause_tokens
    answer, shown_words = SOLVERS[problem](words[: start - pause_tokens]), words[start + 1 :]
    if form == "next_token":
        assert shown_words == answer, "the input must contain the true answer"
        answer = [*answer, "#"]
    else:
        assert set(shown_words) == {"#"}
        answer = [*answer, *"#" * (1 + len(shown_words) - len(answer))]
    return [-1] * start + [0 if word == "#" else 1 + int(word) for word in answer]


def parity(bits: list[str]) -> list[str]:
    is_odd = False
    for bit in bits:
        is_odd ^= bit == "1"
    return [str(int(is_odd))]


def add_carries(columns: list[int]) -> list[str]:
    """Return the digits of a number, lowest first, from sums of its binary columns."""
    for place in range(len(columns) - 1):
        columns[place + 1] += columns[place] // 2
        columns[place] %= 2
    return [str(column) for column in columns]


def add(query: list[str]) -> list[str]:
    """Add by columns: highest digit first, one digit more than the summands have."""
    middle = query.index("+")
    columns = [int(a) + int(b) for a, b in zip(query[:middle], query[middle + 1 :], strict=True)]
    return add_carries([*reversed(columns), 0])[::-1]


def count_ones(bits: list[str]) -> list[str]:
    """Count the ones, lowest digit first, without zeros at the end."""
    digits = add_carries([bits.count("1"), *[0] * len(bits)])
    while len(digits) > 1 and digits[-1] == "0":
        digits.pop()
    return digits


def multiply(query: list[str]) -> list[str]:
    """Multiply by columns of partial products: lowest digit first, as many digits as both factors have."""
    first, second = query[: query.index("x")], query[query.index("x") + 1 :]
    columns = [0] * (len(first) + len(second))
    for i, first_digit in enumerate(reversed(first)):
        for j, second_digit in enumerate(reversed(second)):
            columns[i + j] += (first_digit, second_digit) == ("1", "1")
    return add_carries(columns)


SOLVERS: dict[str, Callable[[list[str]], list[str]]] = {
    "parity": parity,
    "copy": list,
    "addition": add,
    "binary_sum": count_ones,
    "multiplication": multiply,
    "unique_set": lambda words: [word for place, word in enumerate(words) if word not in words[:place]],
}
