"""Simplified queries are equivalent to the originals, and equal examples worked out by hand."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.readers.sparql import FILTER, NotAQuery, simplify

HEAD = "SELECT DISTINCT ?x0 WHERE {"


@pytest.mark.parametrize(
    ("clauses", "simplified"),
    [
        ("?x0 a people.person", "?x0 a people.person"),
        # Objects of the same subject and relation are merged.
        ("?x0 film.actor.film M2 . ?x0 film.actor.film M1", "?x0 film.actor.film M1 M2"),
        # Subjects of the same relation and objects are merged.
        ("M2 p ?x0 . M1 p ?x0 . M3 p ?x1", "M1 M2 p ?x0 . M3 p ?x1"),
        # Relations of the same subjects and objects are merged in any order.
        ("M1 q ?x0 . M1 p ?x0", "M1 p q ?x0"),
        # Two subjects and relations with two objects are merged at once.
        (
            " . ".join(f"{s} {r} {o}" for s, r, o in itertools.product(("M0", "M1"), "qp", ("M3", "M2"))),
            "M0 M1 p q M2 M3",
        ),
        # The published scripts treat objects in another order as different.
        ("M0 p M2 . M0 p M3 . M1 p M3 . M1 p M2", "M0 p M2 M3 . M1 p M2 M3"),
        # Filters do not change and are sorted with the other clauses.
        (
            "M0 p ?x1 . ?x0 p ?x1 . FILTER ( ?x0 != ?x1 ) . ?x0 a b",
            "?x0 a b . FILTER ( ?x0 != ?x1 ) . M0 ?x0 p ?x1",
        ),
        ("M0 p M1 .", "M0 p M1"),
    ],
)
def test_common_terms_of_clauses_are_merged(clauses: str, simplified: str) -> None:
    simplified_text = " ".join(simplify(f"{HEAD} {clauses} }}".split(), invert=False))
    sorted_subjects = simplified.replace("M0 ?x0 p", "?x0 M0 p")
    expected = sorted(sorted_subjects.split(" . "))
    assert simplified_text == f"{HEAD} {' . '.join(expected)} }}"


def test_some_relations_are_inverted_on_request() -> None:
    query = f"{HEAD} M1 film.film.directed_by ?x0 . ?x0 film.director.film M2 . ?x0 a x }}".split()
    assert simplify(query, invert=False) == (
        f"{HEAD} ?x0 a x . ?x0 film.director.film M2 . M1 film.film.directed_by ?x0 }}".split()
    )
    assert simplify(query, invert=True) == f"{HEAD} ?x0 a x . ?x0 film.director.film M1 M2 }}".split()


NAMES, RELATIONS = ("M0", "M1", "?x0", "?x1"), ("p.a", "p.b", "p.c")
triples = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(RELATIONS), st.sampled_from(NAMES)),
    min_size=1,
    max_size=12,
    unique=True,
)


@given(triples, st.booleans())
def test_simplified_query_is_equivalent(clauses: list[tuple[str, str, str]], filtered: bool) -> None:
    """The combinations of the lists of all clauses are exactly the clauses of the query."""
    filters = ["FILTER ( ?x0 != M0 )"] if filtered else []
    body = " . ".join([*(" ".join(clause) for clause in clauses), *filters])
    simplified = simplify(f"{HEAD} {body} }}".split(), invert=False)
    text = " ".join(simplified).removeprefix(HEAD + " ").removesuffix(" }").split(" . ")
    assert [clause for clause in text if clause.startswith(FILTER)] == filters
    combinations = []
    for clause in text:
        if not clause.startswith(FILTER):
            words = clause.split()
            between = [word for word in words if word in RELATIONS]
            start = words.index(between[0])
            assert words[start : start + len(between)] == between
            combinations += itertools.product(words[:start], between, words[start + len(between) :])
    assert sorted(combinations) == sorted(clauses)
    assert len(simplified) <= len(f"{HEAD} {body} }}".split())


@pytest.mark.parametrize(
    "query", ["SELECT ?x0", "SELECT ?x0 { M0 p M1 . . M0 p M2 }", "SELECT ?x0 { M0 p M1 M2 }"]
)
def test_malformed_query_raises_an_error(query: str) -> None:
    with pytest.raises(NotAQuery):
        simplify(query.split(), invert=False)
