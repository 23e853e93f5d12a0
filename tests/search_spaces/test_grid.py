"""Combinations of countable spaces."""

import pytest

from search_spaces.dimensions import Choice, Constraint, Dimension, Float, Int, Space, When, max_value
from search_spaces.grid import (
    COUNTED_MAX,
    combinations,
    count_combinations,
    count_values,
    finite_values,
    is_finite,
)


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (Choice((1, True, None)), [1, True, None]),
        (Int(2, 8, step=3), [2, 5, 8]),
        (Float(0.1, 0.4, step=0.1), [0.1, 0.2, 0.3, 0.4]),
        (Float(0.0, 1.0, step=0.4), [0.0, 0.4, 0.8]),
    ],
)
def test_values_of_a_domain_are_listed(domain, expected):
    assert is_finite(domain)
    assert list(finite_values(domain)) == expected


SPACE = Space(
    (
        Dimension("model.unit", Choice(("token", "sequence", None))),
        Dimension("model.threshold", Float(0.0, 1.0, step=0.5), (When("model.unit", ("token",)),)),
        Dimension("model.layers", Int(1, 3)),
        Dimension("model.extra", Int(1, 9), (When("task.name", ("another",)),)),
    ),
    (Constraint("model.layers", "<=", "model.most"),),
)


def test_combinations_satisfy_conditions_and_constraints():
    settings = {"model": {"most": 2}, "task": {"name": "this"}}
    params_list = list(combinations(SPACE, settings))
    assert params_list[0] == {"model.unit": "token", "model.threshold": 0.0, "model.layers": 1}
    assert params_list[-1] == {"model.unit": None, "model.layers": 2}
    assert len(params_list) == len({repr(params) for params in params_list}) == (3 + 1 + 1) * 2
    assert count_combinations(SPACE, settings) == len(params_list)


def test_huge_spaces_are_counted_without_a_list():
    huge_space = Space(tuple(Dimension(f"model.x{place}", Int(1, 100)) for place in range(6)))
    assert count_combinations(huge_space, {}) == 100**6 > COUNTED_MAX
    assert next(combinations(huge_space, {})) == {f"model.x{place}": 1 for place in range(6)}


def test_ranges_longer_than_any_list_are_counted() -> None:
    ends = 9 * 10**18
    assert count_values(Int(-ends, ends)) == 2 * ends + 1
    assert count_values(Int(-ends, ends, step=7)) == 2 * ends // 7 + 1
    assert max_value(Int(-ends, ends, step=7)) == -ends + 2 * ends // 7 * 7
    assert count_values(Float(0.0, 1.0, step=2.0**-53)) == 2**53 + 1
