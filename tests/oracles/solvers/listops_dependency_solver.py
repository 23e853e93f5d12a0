"""The solver of ListOps-O for the same language, and the dependency depth of an answer, by recursion."""

from collections.abc import Iterator

from tests.oracles.solvers.listops_solver import MEANINGS, solve  # noqa: F401 the contract calls it

SMALL = {"name": "listops_dependency", "train_examples": 400, "test_examples": 10}
RESEEDED = SMALL | {"data_seed": 1}


def depths(text: str) -> tuple[int, int]:
    """Return the number of levels, including that of digits, and the dependency depth."""
    words = iter(text.split())
    _, levels, dependency = _read(next(words), words)
    return levels, dependency


def count_tokens(text: str) -> int:
    """Count tokens as published: three for each operator with its brackets, one for each digit."""
    return sum(3 if word.startswith("[") else word != "]" for word in text.split())


def _read(word: str, words: Iterator[str]) -> tuple[int, int, int]:
    """Return value, levels and dependency depth of the expression that starts with `word`."""
    if not word.startswith("["):
        return int(word), 1, 1
    arguments = []
    while (nxt := next(words)) != "]":
        arguments.append(_read(nxt, words))
    values = [value for value, _, _ in arguments]
    result = MEANINGS[word](values)
    levels = 1 + max(depth for _, depth, _ in arguments)
    if word == "[SM":
        return result, levels, 1 + max(depth for _, _, depth in arguments)
    if word == "[MED":
        ranked = sorted(range(len(values)), key=values.__getitem__)
        middle = {ranked[(len(values) - 1) // 2], ranked[len(values) // 2]}
        return result, levels, 1 + max(arguments[i][2] for i in middle)
    return result, levels, 1 + arguments[values.index(result)][2]
