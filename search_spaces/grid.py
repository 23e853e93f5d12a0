"""List every combination of a finite space, for grid search."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from math import prod
from typing import Any, Final

from search_spaces.algebra import admits, exists
from search_spaces.dimensions import (
    Assignment,
    Choice,
    Domain,
    Fixed,
    Float,
    Int,
    Powers,
    Space,
    Value,
    max_value,
)

NAME: Final = "grid"
"""Name of grid search as the sampler in a spec."""
COUNTED_MAX = 100_000
"""Maximum number of combinations that are counted one by one if conditions or constraints exclude some."""


def is_finite(domain: Domain) -> bool:
    """Return whether `domain` has finitely many values; only floats without a step have not."""
    return not isinstance(domain, Float) or domain.step is not None


def finite_values(domain: Domain) -> Sequence[Value]:
    """Return all values of a finite domain, in order.

    Steps are decimal: 0.3 rather than 0.30000000000000004.
    """
    match domain:
        case Choice(listed):
            return listed
        case Powers():
            return domain.values
        case Fixed(value):
            return (value,)
        case Float(low, _, _, step):
            assert step is not None, "a float without a step has no list of values"
            first, stride = Decimal(repr(low)), Decimal(repr(step))
            last = max_value(domain)
            return [min(float(first + index * stride), last) for index in range(count_values(domain))]
        case _:
            return range(domain.low, domain.high + 1, domain.step)


def combinations(space: Space, settings: Mapping[str, Any]) -> Iterator[Assignment]:
    """Yield every assignment that `space` admits once; the last dimension varies fastest.

    Args:
        space: A space whose domains are finite.
        settings: Settings of the arm, which conditions and constraints may refer to.
    """
    for assignment in _assignments(space, settings, 0, {}):
        if all(admits(rule, assignment, settings) for rule in space.constraints):
            yield assignment


def count_combinations(space: Space, settings: Mapping[str, Any]) -> int:
    """Return the number of combinations; if it exceeds `COUNTED_MAX`, ignore conditions and constraints."""
    num_all = prod(count_values(dimension.domain) for dimension in space.dimensions)
    if num_all > COUNTED_MAX or not (
        space.constraints or any(dimension.when for dimension in space.dimensions)
    ):
        return num_all
    return sum(1 for _ in islice(combinations(space, settings), COUNTED_MAX))


def count_values(domain: Domain) -> int:
    """Return the number of values of a finite domain."""
    if isinstance(domain, Float):
        assert domain.step is not None, "a float without a step has no number of values"
        return round((max_value(domain) - domain.low) / domain.step) + 1
    if isinstance(domain, Int):
        return (domain.high - domain.low) // domain.step + 1  # `len` overflows for long ranges
    return len(finite_values(domain))


def _assignments(
    space: Space, settings: Mapping[str, Any], index: int, prefix: Assignment
) -> Iterator[Assignment]:
    """Yield the assignments that start with `prefix`, the values of the first `index` dimensions."""
    if index == len(space.dimensions):
        yield prefix
        return
    dimension = space.dimensions[index]
    if not exists(dimension, prefix, settings):
        yield from _assignments(space, settings, index + 1, prefix)
        return
    for value in finite_values(dimension.domain):
        yield from _assignments(space, settings, index + 1, {**prefix, dimension.path: value})
