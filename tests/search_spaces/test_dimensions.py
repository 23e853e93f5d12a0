"""Constructors refuse ranges that cannot be sampled, and membership depends on type and value."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.dimensions import (
    Choice,
    Constraint,
    Dimension,
    Fixed,
    Float,
    Int,
    Powers,
    Space,
    When,
    are_equal,
    contains,
    is_among,
)

WIDTH = Dimension("model.width", Int(8, 64))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Float(1.0, 1.0), "low"),
        (lambda: Float(math.nan, 1.0), "low=nan"),
        (lambda: Float(0.0, 1.0, log=True), "low"),
        (lambda: Float(0.0, 1.0, step=5e-324), "step"),
        (lambda: Float(-1e308, 1e308), "low"),
        (lambda: Int(16, 32, step=17), "step=17"),
        (lambda: Int(1, 9, log=True, step=2), "log"),
        (lambda: Choice(()), "choice"),
        (lambda: Choice((1, 2, 1.0)), r"1\.0"),
        (lambda: Choice(([math.nan],)), "values"),
        (lambda: When("model.width", ()), "model.width"),
        (lambda: Dimension("model.a", Int(1, 2), (When("model.a", (1,)),)), "model.a"),
        (lambda: Constraint("model.a", "=<", 3), "'=<'"),
        (lambda: Powers(16, 250, 2), "250"),
        (lambda: Space((WIDTH, WIDTH)), "model.width"),
    ],
)
def test_impossible_domains_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_true_is_not_a_number() -> None:
    assert are_equal(1, 1.0)
    assert not is_among(1, (True,))
    assert not contains(Choice((0,)), value=False)
    assert Choice((1, True)).values == (1, True)
    assert not is_among(None, (0, "", False))


@pytest.mark.parametrize(
    ("domain", "inside", "outside"),
    [
        (Float(0.0, 1.0), [0, 0.0, 0.5, 1], [-0.1, 1.1, True, "0.5", None]),
        (Float(0.0, 1.0, step=0.1), [0.3, 0.7, 1.0], [0.35]),
        (Int(1, 9, step=4), [1, 5, 9], [2, 5.0, True, 13, "5"]),
        (Choice(("a", None, 1)), ["a", None, 1], ["b", True, 0]),
        (Fixed(0.5), [0.5], [0.4]),
    ],
)
def test_domain_contains_its_values(domain: Any, inside: list[Any], outside: list[Any]) -> None:
    assert [value for value in inside if not contains(domain, value)] == []
    assert [value for value in outside if contains(domain, value)] == []


@given(low=st.floats(-1e6, 1e6), step=st.floats(1e-3, 1e3), count=st.integers(1, 1000), data=st.data())
def test_lattice_contains_its_points(low: float, step: float, count: int, data: st.DataObject) -> None:
    domain = Float(low, low + count * step, step=step)
    point = low + data.draw(st.integers(0, count)) * step
    assert contains(domain, min(point, domain.high))


@pytest.mark.parametrize(
    ("domain", "values"),
    [(Powers(16, 256, 2), (16, 32, 64, 128, 256)), (Powers(1e-5, 0.1, 10), (1e-5, 1e-4, 1e-3, 1e-2, 0.1))],
)
def test_powers_have_the_expected_values(domain: Powers, values: tuple[float, ...]) -> None:
    assert domain.values == values
    assert all(contains(domain, value) for value in values)
    assert not contains(domain, values[0] * 1.5)
    assert not any(contains(domain, value) for value in (True, "16", None))


def test_lists_and_mappings_of_a_choice_are_distinct() -> None:
    domain = Choice(([64], [64, 32], {"name": "adam", "betas": [0.9, 0.99]}, None))
    assert contains(domain, [64.0])
    assert contains(domain, {"betas": [0.9, 0.99], "name": "adam"})
    assert contains(domain, None)
    assert not contains(domain, [32, 64])
    assert not contains(Choice(([True],)), [1])
