"""Names of the product use the words of the glossary; retired words only become fewer."""

import ast
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.architecture.source import nodes, product_files

RETIRED = {
    "assignment": "params",
    "heard": "report",
    "hear": "report",
    "likes": "normal form",
    "mend": "repair",
    "mended": "repair",
    "notice": "warning",
    "notices": "warning",
    "offer": "project_kv",
    "offered": "project_kv",
    "owe": "pending",
    "owed": "pending",
    "price": "estimate",
    "prices": "estimate",
    "proof": "ablation check",
    "proofs": "ablation check",
    "reading": "re-evaluation",
    "readings": "re-evaluation",
    "recall": "cross_attention",
    "saying": "warning",
    "tell": "report",
    "told": "report",
    "twin": "fingerprint",
    "twins": "fingerprint",
}
"""Word that no identifier may contain, and the word that replaces it."""
REMAINING = {
    "assignment": 6,
    "heard": 1,
    "notice": 1,
    "notices": 1,
    "price": 1,
    "prices": 1,
    "proof": 2,
    "proofs": 1,
    "reading": 2,
    "readings": 3,
    "recall": 3,
    "tell": 1,
}
"""Greatest number of identifiers that still contain the word. Lower it after a renaming, never raise it."""


def identifiers() -> Iterator[str]:
    """Yield the names of functions, classes, parameters, variables and attributes of the product."""
    for node in (node for path in product_files() for node in nodes(path)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


@pytest.fixture(scope="module")
def uses() -> Counter[str]:
    """Number of different identifiers with each word."""
    parts = (re.findall(r"[A-Z]?[a-z]+", name) for name in set(identifiers()))
    return Counter(word for words in parts for word in {word.lower() for word in words})


@pytest.mark.parametrize("word", RETIRED)
def test_no_identifier_contains_a_retired_word(word: str, uses: Counter[str]) -> None:
    assert uses[word] <= REMAINING.get(word, 0), f"use {RETIRED[word]!r} in place of {word!r}"
