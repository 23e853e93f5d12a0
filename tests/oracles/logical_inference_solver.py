"""Formulas read as text and compared world by world: shares the definitions with the task, no code."""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product

SMALL = {"name": "logical_inference", "pairs": 12_000, "held_out": "A"}
RESEEDED = SMALL | {"data_seed": 1}
VARIANTS = {
    "sequence": {"form": "sequence"},
    "nothing held out": {"held_out": None},
    "sequence, C held out": {"form": "sequence", "held_out": "C"},
}
LABELS = ["independent", "equal", "inside", "around", "opposite", "apart", "covering"]


def solve(text: str, form: str = "pair", held_out: str | None = "A") -> int | list[int]:
    """The label, or an answer of one token; what is held out changes no answer."""
    return [label(text)] if form == "sequence" else label(text)


@cache
def label(text: str) -> int:
    first, second = (holds_in(sentence) for sentence in text.split(" <sep> "))
    worlds = set(range(64))
    assert first not in (set(), worlds), f"must be contingent: {text}"
    assert second not in (set(), worlds), f"must be contingent: {text}"
    return LABELS.index(relation(first, second, worlds))


def relation(first: set[int], second: set[int], worlds: set[int]) -> str:
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


def holds_in(sentence: str) -> set[int]:
    """Numbers of the worlds, of 64, in which the sentence is true."""
    found = set()
    for number, values in enumerate(product((False, True), repeat=6)):
        words = iter(sentence.split())
        if value(next(words), words, dict(zip("abcdef", values, strict=True))):
            found.add(number)
        assert next(words, None) is None, f"nothing may follow the formula: {sentence}"
    return found


def value(word: str, words: Iterator[str], world: Mapping[str, bool]) -> bool:
    """The value of the formula that starts with `word`."""
    if word != "(":
        return world[word]
    word = next(words)
    if word == "not":
        inside = value(next(words), words, world)
        assert next(words) == ")"
        return not inside
    left = value(word, words, world)
    assert next(words) == "("
    connective = next(words)
    right = value(next(words), words, world)
    assert [next(words), next(words)] == [")", ")"]
    return {"and": left and right, "or": left or right}[connective]
