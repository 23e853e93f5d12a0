"""How good a search was: the best that fewer draws would have found, and the volume that its front dominates.

The best of k draws is expected from n that were made. Source: Dodge et al. 2019, "Show Your Work",
arXiv:1909.03004, s. 3. Draws are taken from the values found, with replacement, as if no trial had known of
the others; a sampler that learns breaks that, and its later trials make the curve too good for its first few
draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ExpectedBest:
    """Of one number of draws."""

    draws: int
    mean: float
    low: float
    """The best of so many draws is below this in a tenth of cases."""
    high: float
    """And above this in a tenth."""


def expected_best(values: Sequence[float], draws: Sequence[int], *, larger: bool) -> list[ExpectedBest]:
    """Mean and the middle 80% of the best of each number of `draws` from `values`.

    `larger`: large values are good. Of n values in order the best of k draws is at most the i-th with
    probability (i / n)^k. Raises ValueError for no values.
    """
    if not values:
        raise ValueError(f"an expected best needs at least one value, got {values=}")
    sign = 1.0 if larger else -1.0
    ordered = sorted(sign * value for value in values)
    return [_expected(ordered, number, sign) for number in draws]


def _expected(ordered: Sequence[float], draws: int, sign: float) -> ExpectedBest:
    below = [(place / len(ordered)) ** draws for place in range(len(ordered) + 1)]
    mean = sum(value * (below[place + 1] - below[place]) for place, value in enumerate(ordered))
    ends = [_quantile(ordered, below, share) for share in (0.1, 0.9)]
    low, high = sorted(sign * end for end in ends)
    return ExpectedBest(draws, sign * mean, low, high)


def _quantile(ordered: Sequence[float], below: Sequence[float], share: float) -> float:
    """The least value that the best is at most with probability `share`."""
    return next(value for value, reached in zip(ordered, below[1:], strict=True) if reached >= share)


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """How much better than `reference` the points of a front are together.

    Volume of all that some of `points` is at least as large as, and that is larger than `reference`.

    Large values are good in every coordinate. Exact, by slices along the last coordinate: n points in d
    coordinates take time of about n^(d - 1).
    """
    inside = [each for each in points if all(one > low for one, low in zip(each, reference, strict=True))]
    if not inside:
        return 0.0
    if len(reference) == 1:
        return max(each[0] for each in inside) - reference[0]
    ordered = sorted(inside, key=lambda each: each[-1], reverse=True)
    ends = [*(each[-1] for each in ordered[1:]), reference[-1]]
    return sum(
        (each[-1] - end) * hypervolume([one[:-1] for one in ordered[: place + 1]], reference[:-1])
        for place, (each, end) in enumerate(zip(ordered, ends, strict=True))
        if each[-1] > end
    )
