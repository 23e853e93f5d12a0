"""Read formulas as text and compare the worlds in which they hold, without code of the task."""

from collections.abc import Iterator, Set
from functools import cache
from itertools import product

SMALL = {"name": "logical_inference", "pairs": 12_000, "test_pairs": 12_000, "held_out": "A"}
RESEEDED = SMALL | {"data_seed": 1}
VARIANTS = {
    "sequence": {"form": "sequence"},
    "nothing held out": {"held_out": None},
    "sequence, C held out": {"form": "sequence", "held_out": "C"},
}
LABELS = ["independent", "equal", "inside", "around", "opposite", "apart", "covering"]
WORLDS = frozenset(range(64))
TRUE_WORLDS = {
    letter: frozenset(
        number for number, values in enumerate(product((False, True), repeat=6)) if values[place]
    )
    for place, letter in enumerate("abcdef")
}
"""Worlds in which each letter is true."""


def solve(text: str, form: str = "pair", held_out: str | None = "A") -> int | list[int]:
    """Return the label, or an answer of one token; the held-out pattern does not affect it."""
    return [label(text)] if form == "sequence" else label(text)


@cache
def label(text: str) -> int:
    first, second = (holds_in(sentence) for sentence in text.split(" <sep> "))
    assert first not in (set(), WORLDS), f"must be contingent: {text}"
    assert second not in (set(), WORLDS), f"must be contingent: {text}"
    return LABELS.index(relation(first, second, WORLDS))


def relation(first: Set[int], second: Set[int], worlds: Set[int]) -> str:
    if first == second:
        return "equal"
    if first < second:
        return "inside"
    if first > second:
        return "around"
    covers_all = first | second == worlds
    if first.isdisjoint(second):
        return "opposite" if covers_all else "apart"
    return "covering" if covers_all else "independent"


@cache
def holds_in(sentence: str) -> frozenset[int]:
    """Return the numbers of the worlds, of 64, in which the sentence is true."""
    words = iter(sentence.split())
    worlds = worlds_of(next(words), words)
    assert next(words, None) is None, f"nothing may follow the formula: {sentence}"
    return worlds


def worlds_of(word: str, words: Iterator[str]) -> frozenset[int]:
    """Return the worlds in which the formula that starts with `word` is true."""
    if word != "(":
        return TRUE_WORLDS[word]
    word = next(words)
    if word == "not":
        negated = worlds_of(next(words), words)
        assert next(words) == ")"
        return WORLDS - negated
    left = worlds_of(word, words)
    assert next(words) == "("
    connective = next(words)
    right = worlds_of(next(words), words)
    assert [next(words), next(words)] == [")", ")"]
    return {"and": left & right, "or": left | right}[connective]
