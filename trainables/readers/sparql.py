"""Shorten the SPARQL queries of CFQ: parts that several clauses share are written once.

The rules are those of the preprocessing scripts of Zheng and Lapata, "Disentangled Sequence to Sequence
Learning for Compositional Generalization", which write queries as Furrer et al., "Compositional
Generalization in Semantic Parsing", do. Clauses with equal subject and relation list their objects. Resulting
clauses with equal relation and objects list their subjects. Resulting clauses with equal subjects and objects
list their relations. Each list is sorted, and so are the clauses, including filters. For MCD2 and MCD3 ten
relations are first replaced by their inverse, with subject and object swapped.

Departures: an invalid clause is an error; the scripts leave it in place, before the others.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

SEPARATOR, OPEN, CLOSE, FILTER = ".", "{", "}", "FILTER"
_COMPANY = "organization.organization"
_RELATIONSHIP = "film.film_film_distributor_relationship"
INVERSES = {
    "film.film.executive_produced_by": "film.producer.films_executive_produced",
    "film.film.directed_by": "film.director.film",
    "film.film.written_by": "film.writer.film",
    "film.film.edited_by": "film.editor.film",
    "film.film.produced_by|ns:film.film.production_companies": (
        "film.producer.film|ns:film.production_company.films"
    ),
    "film.film.distributors/ns:" + _RELATIONSHIP + ".distributor": (
        "film.film_distributor.films_distributed/ns:" + _RELATIONSHIP + ".film"
    ),
    "influence.influence_node.influenced_by": "influence.influence_node.influenced",
    "people.person.employment_history/ns:business.employment_tenure.company": (
        "business.employer.employees/ns:business.employment_tenure.person"
    ),
    _COMPANY + ".founders": "organization.organization_founder.organizations_founded",
    _COMPANY + ".acquired_by/ns:business.acquisition.acquiring_company": (
        _COMPANY + ".companies_acquired/ns:business.acquisition.company_acquired"
    ),
}
"""Relations to invert, written without the prefix `ns:`."""
Words = Sequence[str]
Key = TypeVar("Key")


class NotAQuery(ValueError):
    """A text is not a query. The message states the expected form; the caller adds file and line."""


def simplify(query: Words, *, invert: bool) -> list[str]:
    """Return the query with grouped clauses, after inverting relations if `invert`. Raises `NotAQuery`."""
    head, body = _parts(query)
    filters = [tuple(clause) for clause in body if clause[0] == FILTER]
    triples = [_triple(clause, invert=invert) for clause in body if clause[0] != FILTER]
    clauses = [" ".join(clause) for clause in (*filters, *_gather(triples))]
    return [*head, *f" {SEPARATOR} ".join(sorted(clauses)).split(), CLOSE]


def _parts(query: Words) -> tuple[Words, Sequence[Words]]:
    """Return the words of the query up to and including the opening brace, and its clauses."""
    if OPEN not in query or query[-1] != CLOSE:
        raise NotAQuery("a query with its clauses between { and } at its end")
    start = query.index(OPEN) + 1
    clauses: list[list[str]] = [[]]
    for word in query[start:-1]:
        if word == SEPARATOR:
            clauses.append([])
        else:
            clauses[-1].append(word)
    if not clauses[-1]:
        clauses.pop()
    if not clauses or not all(clauses):
        raise NotAQuery("clauses with one . between each two")
    return query[:start], clauses


def _triple(clause: Words, *, invert: bool) -> tuple[str, str, str]:
    if len(clause) != 3:
        raise NotAQuery(f"clauses of a subject, a relation and an object, not {' '.join(clause)!r}")
    subject, relation, object_ = clause
    if invert and relation in INVERSES:
        return object_, INVERSES[relation], subject
    return subject, relation, object_


def _gather(triples: Iterable[tuple[str, str, str]]) -> list[list[str]]:
    """Return clauses of several subjects, relations and objects, each list sorted."""
    by_relation = _group(((subject, relation), object_) for subject, relation, object_ in triples)
    by_objects = _group(
        ((relation, objects), subject) for (subject, relation), objects in by_relation.items()
    )
    by_ends = _group(((objects, subjects), relation) for (relation, objects), subjects in by_objects.items())
    return [
        [*sorted(subjects), *sorted(relations), *sorted(objects)]
        for (objects, subjects), relations in by_ends.items()
    ]


def _group(pairs: Iterable[tuple[Key, str]]) -> dict[Key, tuple[str, ...]]:
    """Map each key to its words; keys are in the order of their first occurrence."""
    groups: defaultdict[Key, list[str]] = defaultdict(list)
    for key, word in pairs:
        groups[key].append(word)
    return {key: tuple(words) for key, words in groups.items()}
