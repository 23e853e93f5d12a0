"""The difference of two means of separate samples, whose spreads may differ (Welch 1947)."""

import math
from collections.abc import Sequence

LEVEL = 0.95


def difference(
    first: Sequence[float], second: Sequence[float], level: float = LEVEL
) -> tuple[float, float | None, float | None]:
    """Mean of `second` minus mean of `first`, with the ends of its two-sided interval at `level`.

    Degrees of freedom by Welch and Satterthwaite. The ends are None where a sample has fewer than two values,
    or neither varies: such values do not tell how far chance goes. Raises ValueError for an empty sample.
    """
    if not first or not second:
        raise ValueError(f"both samples must have values, got {len(first)} and {len(second)}")
    mean = math.fsum(second) / len(second) - math.fsum(first) / len(first)
    if min(len(first), len(second)) < 2:
        return mean, None, None
    parts = [_variance(each) / len(each) for each in (first, second)]
    error = math.fsum(parts)
    if error == 0:
        return mean, None, None
    from scipy import special

    sizes = (len(first), len(second))
    freedom = error**2 / math.fsum(part**2 / (n - 1) for part, n in zip(parts, sizes, strict=True))
    half = float(special.stdtrit(freedom, (1 + level) / 2)) * math.sqrt(error)
    return mean, mean - half, mean + half


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
