"""How much better than a reference point the points of a front are together: the volume they dominate."""

from collections.abc import Sequence

Point = tuple[float, ...]


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """Volume of all that some of `points` is at least as large as, and that is larger than `reference`.

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
