"""Formulas read as text, by the worlds in which they hold: shares the definitions with the task, no code."""

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
TRUE = {
    letter: frozenset(
        number for number, values in enumerate(product((False, True), repeat=6)) if values[place]
    )
    for place, letter in enumerate("abcdef")
}
"""The worlds in which a letter is true."""


def solve(text: str, form: str = "pair", held_out: str | None = "A") -> int | list[int]:
    """The label, or an answer of one token; what is held out changes no answer."""
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
    together = first | second == worlds
    if first.isdisjoint(second):
        return "opposite" if together else "apart"
    return "covering" if together else "independent"


@cache
def holds_in(sentence: str) -> frozenset[int]:
    """Numbers of the worlds, of 64, in which the sentence is true."""
    words = iter(sentence.split())
    found = where(next(words), words)
    assert next(words, None) is None, f"nothing may follow the formula: {sentence}"
    return found


def where(word: str, words: Iterator[str]) -> frozenset[int]:
    """The worlds in which the formula is true that starts with `word`."""
    if word != "(":
        return TRUE[word]
    word = next(words)
    if word == "not":
        inside = where(next(words), words)
        assert next(words) == ")"
        return WORLDS - inside
    left = where(word, words)
    assert next(words) == "("
    connective = next(words)
    right = where(next(words), words)
    assert [next(words), next(words)] == [")", ")"]
    return {"and": left & right, "or": left | right}[connective]
