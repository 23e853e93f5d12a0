"""Verdicts in spite of failed seeds: those that hold for every value that a failed seed could have had.

A failed seed has no value, but the metric has a range. So the difference of a failed unit lies between two
bounds. `settled` tests all combinations of these bounds and gives a verdict if all of them agree.

Agreement at the bounds is agreement in between. The t test finds an effect where
(n - 1 + c^2) (sum d)^2 / n > c^2 sum d^2. The left side minus the right side is concave in every single d for
c > 1, so it is positive between two values at which it is positive, and the sum of d never crosses 0 there.
The larger end of an interval, |mean| + c * spread / sqrt(n), is convex in all d, so it is largest at bounds.
The error of such a verdict is at most that of the verdict without any failure, whatever made seeds fail.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Literal

from orchestrator.statistics.paired import Paired
from orchestrator.statistics.verdicts import SEEDS_LEAST, verdict

MOST_MISSING = 8
"""With more failed units, whose combinations of bounds double with each of them, a verdict is withheld."""
Bounds = Mapping[int, tuple[float, float]]
"""By unit without a value, the smallest and the largest difference that it could have had."""


def settled(
    found: Paired,
    bounds: Bounds,
    compare_with: Callable[[Mapping[int, float]], Paired],
    *,
    margin: float | None = None,
    better: Literal["max", "min"] | None = None,
) -> Paired:
    """Return what holds for every value of the missing units; `found` if the verdict depends on them.

    Args:
        found: What the units with a value say.
        bounds: By unit without a value, the bounds of its difference.
        compare_with: Returns the comparison if the missing units had the given differences.
        margin: Least difference that matters, in units of the outcome.
        better: Which values are good.

    Returns:
        `found` with an interval that covers those at all bounds, the largest p, and the number of `missing`
        units.
    """
    if not bounds or len(bounds) > MOST_MISSING or found.n < SEEDS_LEAST:
        return found
    at_bounds: list[Paired] = []
    kind = None
    for given in _combinations(bounds):
        each = compare_with(given)
        said = verdict(each, margin=margin, better=better).kind
        if said == "undecided" or (kind is not None and said != kind):
            return found
        kind = said
        at_bounds.append(each)
    return replace(
        found,
        low=min(found.mean, *(each.low for each in at_bounds if each.low is not None)),
        high=max(found.mean, *(each.high for each in at_bounds if each.high is not None)),
        p=max(each.p for each in at_bounds if each.p is not None),
        missing=len(bounds),
    )


def _combinations(bounds: Bounds) -> Iterator[dict[int, float]]:
    """Yield every combination of bounds; the first two, all low and all high, disagree most often."""
    lows, highs = ({unit: ends[side] for unit, ends in bounds.items()} for side in (0, 1))
    yield lows
    yield highs
    for ends in product(*bounds.values()):
        given = dict(zip(bounds, ends, strict=True))
        if given not in (lows, highs):
            yield given
