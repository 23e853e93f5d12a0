"""What every ready-made search space must be. A new file in search_spaces is picked up by its name."""

import random
from collections.abc import Iterator

import pytest

from orchestrator.search import space_catalog as catalog
from search_spaces.algebra import admits, exists, merge, order_dimensions
from search_spaces.dimensions import Choice, Domain, Fixed, Float, Int, Space, Value, contains
from search_spaces.parse import parse_space, render_space

DRAWS = 200


@pytest.mark.parametrize("name", catalog.full_names())
def test_every_range_says_where_it_comes_from(name: str) -> None:
    space = catalog.load(name)
    assert space.dimensions, f"{name} varies nothing"
    assert [one.path for one in space.dimensions if not one.source] == []
    assert catalog.describe(name)


@pytest.mark.parametrize("name", catalog.full_names())
def test_order_is_that_of_dependence(name: str) -> None:
    space = catalog.load(name)
    assert order_dimensions(space.dimensions) == space.dimensions


@pytest.mark.parametrize("name", catalog.full_names())
def test_a_spec_could_have_written_it(name: str) -> None:
    space = catalog.load(name)
    found, problems = parse_space(render_space(space.dimensions))
    assert problems == ()
    assert [(one.path, one.domain, one.when) for one in found] == [
        (one.path, one.domain, one.when) for one in space.dimensions
    ]


@pytest.mark.parametrize("name", catalog.full_names())
def test_draws_exist_are_inside_and_some_are_admitted(name: str) -> None:
    space, rng = catalog.load(name), random.Random(0)
    drawn = [_draw(space, rng) for _ in range(DRAWS)]
    assert any(all(admits(one, assignment, {}) for one in space.constraints) for assignment in drawn)
    for dimension in space.dimensions:
        values = [assignment[dimension.path] for assignment in drawn if dimension.path in assignment]
        # A condition that no draw of 200 meets: odds of 2^-200 with two values a parent.
        assert values or any(not _is_own(space, condition.path) for condition in dimension.when)
        assert all(contains(dimension.domain, value) for value in values)


@pytest.mark.parametrize("name", catalog.names())
def test_wide_contains_published(name: str) -> None:
    published, wide = catalog.load(name), catalog.load(f"{name}.wide")
    assert wide.paths == published.paths
    assert wide.constraints == published.constraints
    for narrow in published.dimensions:
        assert narrow.when == wide[narrow.path].when
        values = _values(narrow.domain)
        assert [value for value in values if not contains(wide[narrow.path].domain, value)] == []


def test_all_spaces_go_together() -> None:
    merged = merge(*map(catalog.load, catalog.full_names()))
    assert set(merged.paths) == {path for name in catalog.names() for path in catalog.load(name).paths}


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
