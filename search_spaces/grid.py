"""Every combination of a space whose values can be counted, for a search that tries them all."""

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
    greatest,
)

NAME: Final = "grid"
"""What a spec calls such a search, in place of a sampler."""
COUNTED_MAX = 100_000
"""Combinations that are counted one by one, where conditions or constraints leave some out."""


def is_finite(domain: Domain) -> bool:
    """Whether the values of `domain` can be listed: all but those of a float without a step."""
    return not isinstance(domain, Float) or domain.step is not None


def values(domain: Domain) -> Sequence[Value]:
    """All values of a finite domain, in order: 0.1, 0.2, 0.3 of a lattice, as one would write them."""
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
            last = greatest(domain)
            return [min(float(first + place * stride), last) for place in range(count_values(domain))]
        case _:
            return range(domain.low, domain.high + 1, domain.step)


def combinations(space: Space, settings: Mapping[str, Any]) -> Iterator[Assignment]:
    """Every assignment that `space` admits beside `settings`, once; the last dimension varies fastest."""
    for assignment in _assigned(space, settings, 0, {}):
        if all(admits(each, assignment, settings) for each in space.constraints):
            yield assignment


def count_combinations(space: Space, settings: Mapping[str, Any]) -> int:
    """How many there are: of more than `COUNTED_MAX` how many there would be without conditions."""
    most = prod(count_values(each.domain) for each in space.dimensions)
    if most > COUNTED_MAX or not (space.constraints or any(each.when for each in space.dimensions)):
        return most
    return sum(1 for _ in islice(combinations(space, settings), COUNTED_MAX))


def count_values(domain: Domain) -> int:
    """How many values a finite domain has."""
    if isinstance(domain, Float):
        assert domain.step is not None, "a float without a step has no number of values"
        return round((greatest(domain) - domain.low) / domain.step) + 1
    if isinstance(domain, Int):
        return (domain.high - domain.low) // domain.step + 1  # a range may be longer than `len` can say
    return len(values(domain))


def _assigned(
    space: Space, settings: Mapping[str, Any], place: int, before: Assignment
) -> Iterator[Assignment]:
    """The assignments that begin as `before`, which says what the first `place` dimensions are."""
    if place == len(space.dimensions):
        yield before
        return
    dimension = space.dimensions[place]
    if not exists(dimension, before, settings):
        yield from _assigned(space, settings, place + 1, before)
        return
    for value in values(dimension.domain):
        yield from _assigned(space, settings, place + 1, {**before, dimension.path: value})
