"""Contract of the built-in search spaces: a new file in search_spaces is included by its name."""

import random
from collections.abc import Iterator

import pytest

from orchestrator.search import space_catalog as catalog
from search_spaces.algebra import admits, exists, merge
from search_spaces.dimensions import Choice, Domain, Fixed, Float, Int, Space, Value, contains
from search_spaces.parse import parse_space, render_space

DRAWS = 200


@pytest.mark.parametrize("name", catalog.names_with_variants())
def test_every_range_has_a_source(name: str) -> None:
    space = catalog.load(name)
    assert space.dimensions, f"{name} must have a dimension"
    assert [dimension.path for dimension in space.dimensions if not dimension.source] == []
    assert catalog.describe(name)


@pytest.mark.parametrize("name", catalog.names_with_variants())
def test_space_can_be_written_in_a_spec(name: str) -> None:
    space = catalog.load(name)
    dimensions, problems = parse_space(render_space(space.dimensions))
    assert problems == ()
    assert [(dimension.path, dimension.domain, dimension.when) for dimension in dimensions] == [
        (dimension.path, dimension.domain, dimension.when) for dimension in space.dimensions
    ]


@pytest.mark.parametrize("name", catalog.names_with_variants())
def test_random_params_are_valid_and_some_satisfy_the_constraints(name: str) -> None:
    space, rng = catalog.load(name), random.Random(0)
    assignments = [_draw(space, rng) for _ in range(DRAWS)]
    assert any(
        all(admits(constraint, assignment, {}) for constraint in space.constraints)
        for assignment in assignments
    )
    for dimension in space.dimensions:
        values = [assignment[dimension.path] for assignment in assignments if dimension.path in assignment]
        # With two values a parent, 200 draws miss a condition with a probability of 2^-200.
        assert values or any(not _is_own(space, condition.path) for condition in dimension.when)
        assert all(contains(dimension.domain, value) for value in values)


@pytest.mark.parametrize("name", catalog.space_names())
def test_wide_space_contains_the_published_one(name: str) -> None:
    published, wide = catalog.load(name), catalog.load(f"{name}.wide")
    assert wide.paths == published.paths
    assert wide.constraints == published.constraints
    for narrow in published.dimensions:
        assert narrow.when == wide[narrow.path].when
        values = _values(narrow.domain)
        assert [value for value in values if not contains(wide[narrow.path].domain, value)] == []


def test_all_spaces_can_be_combined() -> None:
    merged_space = merge(*map(catalog.load, catalog.names_with_variants()))
    assert set(merged_space.paths) == {
        path for name in catalog.space_names() for path in catalog.load(name).paths
    }


def _is_own(space: Space, path: str) -> bool:
    return path in space.paths


def _draw(space: Space, rng: random.Random) -> dict[str, Value]:
    assignment: dict[str, Value] = {}
    for dimension in space.dimensions:
        if exists(dimension, assignment, {}):
            assignment[dimension.path] = _sample(dimension.domain, rng)
    return assignment


def _sample(domain: Domain, rng: random.Random) -> Value:
    match domain:
        case Float(low, high):
            return rng.uniform(low, high)
        case Int(low, high, _, step):
            return rng.randrange(low, high + 1, step)
        case Choice(values):
            return rng.choice(values)
        case Fixed(value):
            return value


def _values(domain: Domain) -> Iterator[Value]:
    match domain:
        case Choice(values):
            yield from values
        case Fixed(value):
            yield value
        case Float(low, high) | Int(low, high):
            yield from (low, high)
