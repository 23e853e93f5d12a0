"""Zeros of functions, against SciPy's."""

import math
from collections.abc import Callable

import pytest
from scipy import optimize

from orchestrator.statistics.power import _power
from orchestrator.statistics.roots import root

FUNCTIONS: list[tuple[Callable[[float], float], float, float]] = [
    (lambda x: x**2 - 2, 0.0, 2.0),
    (lambda x: math.exp(x) - 5 * x**2, 0.0, 1.0),
    (lambda x: math.cos(x) - x, -3.0, 4.0),
    (lambda x: x**9 - 1e-3, -1.0, 4.0),
    (lambda x: math.atan(x - 1000), 0.0, 1e6),
    (lambda x: 1e-200 * (x**3 - 0.25), 0.0, 1.0),
    (lambda x: -1.0 if x < 1 / 3 else 1.0, 0.0, 1.0),
    (lambda x: x, 0.0, 1.0),
    (lambda x: x - 1, 0.0, 1.0),
    (lambda x: _power(x, 8, 4, 0.05) - 0.8, 0.0, 4.0),
    (lambda x: _power(x, 3, 30, 0.05) - 0.8, 0.0, 64.0),
]


@pytest.mark.parametrize("rtol", [1e-6, 1e-14])
@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_they_are_those_of_scipy_to_the_last_bit(number: int, rtol: float) -> None:
    function, low, high = FUNCTIONS[number]
    assert root(function, low, high, rtol=rtol) == optimize.brentq(function, low, high, rtol=rtol)


def test_a_function_without_a_zero() -> None:
    with pytest.raises(ValueError, match="signs must differ, got 1 at 0 and 2 at 1"):
        root(lambda x: x + 1, 0.0, 1.0, rtol=1e-6)


def test_a_zero_that_is_not_found() -> None:
    with pytest.raises(ValueError, match="a zero must be found in 100 steps, got as far as "):
        root(lambda x: -1.0 if x < 1e-300 else 1.0, -1e300, 1e300, rtol=0.0, xtol=0.0)
