"""Quality of a search: expected best of fewer draws, and hypervolume of a Pareto front.

The expected best of k draws is estimated from n draws. Source: Dodge et al. 2019, "Show Your Work",
arXiv:1909.03004, s. 3. Draws are sampled with replacement from the observed values, as if trials were
independent. A sampler that learns violates this assumption: its later trials make the curve too good for the
first few draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ExpectedBest:
    """Distribution of the best value of a number of draws."""

    draws: int
    mean: float
    low: float
    """10% quantile: in a tenth of cases the best value is below it."""
    high: float
    """90% quantile: in a tenth of cases the best value is above it."""


def expected_best(values: Sequence[float], draws: Sequence[int], *, larger: bool) -> list[ExpectedBest]:
    """Return mean and middle 80% of the best value for each number of draws.

    Of n sorted values, the best of k draws is at most the i-th with probability (i / n)^k.

    Args:
        values: Observed values of the search.
        draws: Numbers of draws.
        larger: Whether large values are good.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError(f"an expected best needs at least one value, got {values=}")
    sign = 1.0 if larger else -1.0
    ordered = sorted(sign * value for value in values)
    return [_expected_best(ordered, number, sign) for number in draws]


def _expected_best(ordered: Sequence[float], draws: int, sign: float) -> ExpectedBest:
    cumulative_probabilities = [(place / len(ordered)) ** draws for place in range(len(ordered) + 1)]
    mean = sum(
        value * (cumulative_probabilities[place + 1] - cumulative_probabilities[place])
        for place, value in enumerate(ordered)
    )
    ends = [_quantile(ordered, cumulative_probabilities, share) for share in (0.1, 0.9)]
    low, high = sorted(sign * end for end in ends)
    return ExpectedBest(draws, sign * mean, low, high)


def _quantile(ordered: Sequence[float], below: Sequence[float], share: float) -> float:
    """Return the least value that the best value does not exceed with probability `share`."""
    return next(value for value, reached in zip(ordered, below[1:], strict=True) if reached >= share)


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """Return the volume that `points` dominate, above `reference`.

    It is the volume of all locations that exceed `reference` and that some point equals or exceeds in every
    coordinate. Large values are good in every coordinate. The result is exact, by slices along the last
    coordinate: n points in d coordinates take time of about n^(d - 1).
    """
    points_in_box = [
        point
        for point in points
        if all(coordinate > low for coordinate, low in zip(point, reference, strict=True))
    ]
    if not points_in_box:
        return 0.0
    if len(reference) == 1:
        return max(point[0] for point in points_in_box) - reference[0]
    ordered = sorted(points_in_box, key=lambda point: point[-1], reverse=True)
    ends = [*(point[-1] for point in ordered[1:]), reference[-1]]
    return sum(
        (point[-1] - end) * hypervolume([point[:-1] for point in ordered[: place + 1]], reference[:-1])
        for place, (point, end) in enumerate(zip(ordered, ends, strict=True))
        if point[-1] > end
    )
