"""Read ListOps as text and evaluate it by recursion, by the published rules, without code of the task."""

from collections.abc import Iterator
from statistics import median

SMALL = {
    "name": "listops",
    "trees": 3000,
    "near_iid_examples": 300,
    "valid_examples": 100,
    "test_examples": 40,
    "length_ranges": [[20, 40], [200, 300]],
    "train_length_max": 50,
}
RESEEDED = SMALL | {"data_seed": 1}

MEANINGS = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(median(values)),
    "[SM": lambda values: sum(values) % 10,
}


def solve(text: str) -> int:
    words = iter(text.split())
    value = _value(next(words), words)
    assert next(words, None) is None, f"nothing may follow the expression: {text}"
    assert value is not None
    return value


def _value(word: str, words: Iterator[str]) -> int | None:
    """Return the value of the expression that starts with `word`; None for a closing bracket."""
    if word == "]":
        return None
    if word.startswith("["):
        arguments: list[int] = []
        while (argument := _value(next(words), words)) is not None:
            arguments.append(argument)
        return MEANINGS[word](arguments)
    return int(word)
