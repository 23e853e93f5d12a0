"""Pathfinder images read with a ruler: contours are the task's own, everything else is seen in the image.

Of the four ends of the two long contours two are marked. Which, is found by looking for discs; whether a
contour holds together and keeps clear of the others, by measuring distances.
"""

import math
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from trainables.tasks._contours import Drawings, drawings, paddles, render

SMALL = {
    "name": "pathfinder",
    "contour_length": 9,
    "train_examples": 40,
    "valid_examples": 20,
    "test_examples": 20,
}
RESEEDED = SMALL | {"data_seed": 1}

Point = tuple[float, float]
Dash = tuple[Point, Point]
"""Tail and head of a paddle."""


def solve(text: str) -> int:
    targets, distractors = drawn_in(SMALL)[text]
    image = np.asarray(text.split(), dtype=int).reshape(32, 32)
    for contour in (*targets, *distractors):
        assert all(turns_little(one, other) for one, other in pairwise(contour)), "must be one smooth line"
    for one, other in combinations((*targets, *distractors), 2):
        assert gap(one, other) > 0.7, "contours must not touch"
    beginnings = [has_disc(image, contour[0][0]) for contour in targets]
    ends = [has_disc(image, contour[-1][1]) for contour in targets]
    assert (sum(beginnings), sum(ends)) == (1, 1), "one beginning and one end must be marked"
    return int(beginnings.index(True) == ends.index(True))


@cache
def _drawn(length: int, seed: int) -> dict[str, tuple[list[list[Dash]], list[list[Dash]]]]:
    found = {}
    for split, wanted in (("train", 40), ("valid", 20), ("test", 20)):
        round_ = next(drawings(length, seed, split))
        chosen = round_.take(np.arange(wanted))
        for image, contours in zip(render(chosen), contours_of(chosen), strict=True):
            found[" ".join(map(str, image.reshape(-1).tolist()))] = contours
    return found


def drawn_in(settings: Mapping[str, Any]) -> dict[str, tuple[list[list[Dash]], list[list[Dash]]]]:
    return _drawn(settings["contour_length"], settings.get("data_seed", 0))


def contours_of(drawn: Drawings) -> Iterator[tuple[list[list[Dash]], list[list[Dash]]]]:
    """Long and short contours of each image."""
    for long, short in zip(drawn.targets.tolist(), drawn.distractors.tolist(), strict=True):
        yield [dashes(each) for each in long], [dashes(each) for each in short if each[0][2] >= 0]


def dashes(contour: list[list[int]]) -> list[Dash]:
    """The first paddle begins at its anchor, the others end there; lines are told in half pixels."""
    found = []
    for number, (row, column, direction) in enumerate(contour):
        down, right = (paddles().line[direction] / 2).tolist()
        anchor, other = (float(row), float(column)), (row + down, column + right)
        found.append((anchor, other) if number == 0 else (other, anchor))
    return found


def turns_little(one: Dash, other: Dash) -> bool:
    """The next paddle begins near the end of the last one and goes on forwards."""
    (tail, head), (next_tail, next_head) = one, other
    forwards = sum((b - a) * (d - c) for a, b, c, d in zip(tail, head, next_tail, next_head, strict=True))
    return math.dist(head, next_tail) <= 3.5 and forwards >= -0.5


def gap(one: list[Dash], other: list[Dash]) -> float:
    """Least distance between two contours, looked at every quarter of their paddles."""
    first, second = (np.asarray([point for dash in each for point in along(dash)]) for each in (one, other))
    return float(np.sqrt(((first[:, None] - second) ** 2).sum(-1)).min())


def along(dash: Dash) -> list[Point]:
    (down, right), (to_down, to_right) = dash
    shares = np.linspace(0, 1, 5)
    return [(down + share * (to_down - down), right + share * (to_right - right)) for share in shares]


def has_disc(image: np.ndarray, centre: Point) -> bool:
    """Whether all pixels around `centre` are as bright as in a marker, which lines are not."""
    row, column = (round(each) for each in centre)
    around = [image[row + y, column + x] for y in (-1, 0, 1) for x in (-1, 0, 1)]
    return min(around) >= 128 * 143 // 255
