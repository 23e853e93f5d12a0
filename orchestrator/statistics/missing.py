"""Verdicts despite failed seeds: a verdict holds if every possible value of a failed seed gives it.

A failed seed has no value, but the metric has a range. So the difference of a failed unit is between two
bounds. `verdict_despite_missing` tests all combinations of these bounds and returns a verdict if all of them
agree.

If all bounds agree, all values between them agree too. The t test finds an effect if (n - 1 + c^2) (sum d)^2
/ n > c^2 sum d^2. The left side minus the right side is concave in every single d for c > 1. So it is
positive between two values at which it is positive, and the sum of d never crosses 0 there. The larger end of
an interval, |mean| + c * spread / sqrt(n), is convex in all d, so its maximum is at the bounds. The error of
such a verdict is at most the error of the verdict without any failure, for any cause of the failures.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Literal

from orchestrator.statistics.paired import PairedEstimate
from orchestrator.statistics.verdicts import MIN_VERDICT_SEEDS, verdict

MAX_MISSING_UNITS = 8
"""Maximum number of failed units for a verdict; each one doubles the number of combinations of bounds."""
Bounds = Mapping[int, tuple[float, float]]
"""Smallest and largest possible difference by unit without a value."""


def verdict_despite_missing(
    paired: PairedEstimate,
    bounds: Bounds,
    compare_with: Callable[[Mapping[int, float]], PairedEstimate],
    *,
    margin: float | None = None,
    better: Literal["max", "min"] | None = None,
) -> PairedEstimate:
    """Return the result that holds for all possible values of the missing units; else `paired`.

    Args:
        paired: Comparison of the units with a value.
        bounds: By unit without a value, the bounds of its difference.
        compare_with: Returns the comparison for given differences of the missing units.
        margin: Least difference that matters, in units of the outcome.
        better: Whether large or small values are good; None if unknown.

    Returns:
        `paired` with an interval that covers the intervals at all bounds, the largest p, and the number of
        `missing` units.
    """
    if not bounds or len(bounds) > MAX_MISSING_UNITS or paired.n < MIN_VERDICT_SEEDS:
        return paired
    estimates_at_bounds: list[PairedEstimate] = []
    kind = None
    for values_by_unit in _bound_combinations(bounds):
        estimate = compare_with(values_by_unit)
        verdict_kind = verdict(estimate, margin=margin, better=better).kind
        if verdict_kind == "undecided" or (kind is not None and verdict_kind != kind):
            return paired
        kind = verdict_kind
        estimates_at_bounds.append(estimate)
    return replace(
        paired,
        low=min(paired.mean, *(estimate.low for estimate in estimates_at_bounds if estimate.low is not None)),
        high=max(
            paired.mean, *(estimate.high for estimate in estimates_at_bounds if estimate.high is not None)
        ),
        p=max(estimate.p for estimate in estimates_at_bounds if estimate.p is not None),
        num_missing=len(bounds),
    )


def _bound_combinations(bounds: Bounds) -> Iterator[dict[int, float]]:
    """Yield every combination of bounds; the first two, all low and all high, disagree most often."""
    lows, highs = ({unit: ends[index] for unit, ends in bounds.items()} for index in (0, 1))
    yield lows
    yield highs
    for ends in product(*bounds.values()):
        values_by_unit = dict(zip(bounds, ends, strict=True))
        if values_by_unit not in (lows, highs):
            yield values_by_unit
