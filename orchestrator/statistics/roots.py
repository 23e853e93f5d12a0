"""Where a function is zero, by Brent's method. SciPy's `optimize` loads longer than a small plan takes."""

import math
from collections.abc import Callable

MOST_STEPS = 100


def root(
    function: Callable[[float], float], low: float, high: float, *, rtol: float, xtol: float = 2e-12
) -> float:
    """A zero of `function` between `low` and `high`, where it has different signs, give or take
    `xtol + rtol * abs(zero)`.

    Step for step what `scipy.optimize.brentq` does, so that both give the same number. Raises ValueError
    where the signs are the same, or where 100 steps lead to no zero.
    """
    before, at = low, high
    value_before, value = function(before), function(at)
    if value_before == 0:
        return before
    if value == 0:
        return at
    if (value_before < 0) == (value < 0):
        raise ValueError(f"signs must differ, got {value_before:g} at {low:g} and {value:g} at {high:g}")
    beyond = value_beyond = last = move = 0.0
    for _ in range(MOST_STEPS):
        if value_before != 0 and value != 0 and (value_before < 0) != (value < 0):
            beyond, value_beyond = before, value_before
            last = move = at - before
        if abs(value_beyond) < abs(value):
            before, at, beyond = at, beyond, at
            value_before, value, value_beyond = value, value_beyond, value
        least, half = (xtol + rtol * abs(at)) / 2, (beyond - at) / 2
        if value == 0 or abs(half) < least:
            return at
        tried = None
        if abs(last) > least and abs(value) < abs(value_before):
            points = (before, value_before), (at, value), (beyond, value_beyond)
            tried = _secant(*points[:2]) if before == beyond else _extrapolated(*points)
        if tried is not None and 2 * abs(tried) < min(abs(last), 3 * abs(half) - least):
            last, move = move, tried
        else:
            last = move = half
        before, value_before = at, value
        at += move if abs(move) > least else (least if half > 0 else -least)
        value = function(at)
    raise ValueError(f"a zero must be found in {MOST_STEPS} steps, got as far as {value:g} at {at:g}")


Point = tuple[float, float]


def _secant(before: Point, at: Point) -> float:
    """How far the straight line through both has its zero from `at`."""
    return -at[1] * (at[0] - before[0]) / (at[1] - before[1])


def _extrapolated(before: Point, at: Point, beyond: Point) -> float:
    """The same of a hyperbola through all three."""
    slope = (before[1] - at[1]) / (before[0] - at[0])
    other = (beyond[1] - at[1]) / (beyond[0] - at[0])
    turned = beyond[1] * other - before[1] * slope
    divisor = other * slope * (beyond[1] - before[1])
    return -at[1] * turned / divisor if divisor else math.inf  # of values too small to be multiplied
