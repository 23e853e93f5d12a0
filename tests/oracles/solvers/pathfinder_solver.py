"""Decompose Pathfinder images: find dashes, contours and discs that give exactly these pixels.

The solver sees only grey levels. Every place and direction in which a dash would fit is a candidate. A
candidate leads to another one if the published law lets a contour continue there. Two long chains, some short
ones and two discs must together paint the image, pixel for pixel. The answer is whether both discs lie on one
long chain. An image without explanation is faulty.

Pixels determine the answer: of 2,000 images of 6 paddles, 2,000 of 9 and 1,500 of 14, none was misread. Two
images of 6 paddles have explanations with either answer, because long contours meet and may swap ends.

The solver shares the published law with the task, but no code. A dash is a line of 2 pixels from a whole
pixel. Its pivot, around which it may turn, is 1 pixel before its tail; the next pivot is as far after its
head. Heads lie 3 pixels from their pivots, and both are rounded to whole pixels.
"""

import math
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

SMALL = {
    "name": "pathfinder",
    "contour_length": 9,
    "train_examples": 40,
    "valid_examples": 20,
    "test_examples": 20,
}
RESEEDED = SMALL | {"data_seed": 1}
VARIANTS = {"easy": {"contour_length": 6}, "hard": {"contour_length": 14}}
SIDE = 32
EDGE = 4
"""Greatest distance, in pixels and per axis, of a dash from its anchor."""
LONG, SHORT, MARKED = 191, 255, 128
"""Grey levels of long contours, short ones and discs."""
MIN_SHARE = 3
"""Sixteenths of a pixel's light from which the pixel belongs to a dash; other contours keep clear of it."""
NEIGHBOURHOOD = tuple(product(range(-EDGE, EDGE + 1), repeat=2))
HEAD_OFFSETS = tuple((down, right) for down, right in NEIGHBOURHOOD if 2.5 < math.hypot(down, right) < 3.5)
"""Heads of later dashes, relative to their pivots."""

Offset = tuple[int, int]
"""Pixels down and right."""


class DashKind(NamedTuple):
    """Shape of a dash, and its place relative to the pivots."""

    line: Offset
    """Offset from the anchor to the other end, in half pixels."""
    pivot: Offset
    """Offset from the anchor to the next pivot."""
    next_heads: frozenset[Offset]
    """Possible heads of the next dash, relative to the next pivot: less than a right angle away."""
    head: Offset | None
    """Offset of head and anchor from the previous pivot; None for a first dash, anchored at its tail."""


class Dash(NamedTuple):
    row: int
    column: int
    kind: DashKind


class Contour(NamedTuple):
    dashes: tuple[Dash, ...]
    image: np.ndarray
    """Image of the contour alone."""

    @property
    def ends(self) -> tuple[Offset, Offset]:
        """Tail and head of the contour, where discs can be."""
        return self.dashes[0][:2], self.dashes[-1][:2]


class Scene(NamedTuple):
    """One explanation of an image."""

    long: tuple[Contour, Contour]
    short: tuple[Contour, ...]
    is_connected: bool


def solve(text: str, contour_length: int = 9) -> int:
    return answer(np.asarray(text.split(), dtype=int).reshape(SIDE, SIDE), contour_length)


def answer(image: np.ndarray, length: int) -> int:
    """Return whether both discs are on one of the two contours with so many dashes."""
    answers = {scene.is_connected for scene in scenes(image, length)}
    assert answers, "contours and discs must explain every pixel"
    assert len(answers) == 1, "an image must have one answer"
    return int(answers.pop())


def scenes(image: np.ndarray, length: int) -> Iterator[Scene]:
    """Yield all scenes that give this image."""
    # The direction in which a short contour was drawn does not matter.
    distinct = {contour.image.tobytes(): contour for contour in contours(image, SHORT, length // 3)}
    shorts = list(cover_bright_pixels(image, list(distinct.values())))
    for first, second in combinations(contours(image, LONG, length), 2):
        for short_contours in shorts:
            lines = paint_contours(first, second, *short_contours)
            for first_disc_contour, second_disc_contour in product((first, second), repeat=2):
                marks = paint(
                    [
                        (first_disc_contour.ends[0], disc_light(), MARKED),
                        (second_disc_contour.ends[1], disc_light(), MARKED),
                    ]
                )
                if (np.maximum(lines, marks) == image).all() and are_apart(first, second, *short_contours):
                    yield Scene((first, second), short_contours, first_disc_contour is second_disc_contour)


def cover_bright_pixels(
    image: np.ndarray, choices: list[Contour], selected: tuple[Contour, ...] = ()
) -> Iterator[tuple[Contour, ...]]:
    """Yield sets of short contours that explain every pixel that is too bright for long contours."""
    missing = np.argwhere((image > LONG) & (paint_contours(*selected) < image))
    if not len(missing):
        yield selected
        return
    place = tuple(missing[0].tolist())
    for choice in choices:
        if choice.image[place] == image[place]:
            yield from cover_bright_pixels(image, choices, (*selected, choice))


def contours(image: np.ndarray, grey: int, length: int) -> list[Contour]:
    """Return the chains of so many dashes that fit the image, one of those that look the same."""
    fitting = list(fitting_dashes(image, grey))
    dashes_by_place = {(dash.row, dash.column, dash.kind.head): dash for dash in fitting}
    chains = [(dash,) for dash in fitting if dash.kind.head is None]
    for _ in range(length - 1):
        chains = [(*chain, dash) for chain in chains for dash in next_dashes(chain[-1], dashes_by_place)]
    contours_ = [
        Contour(chain, paint((dash[:2], dash_light(dash.kind.line), grey) for dash in chain))
        for chain in chains
    ]
    return list({(contour.ends, contour.image.tobytes()): contour for contour in contours_}.values())


def next_dashes(dash: Dash, places: dict[tuple[int, int, Offset | None], Dash]) -> list[Dash]:
    """Return the dashes that can follow."""
    row, column = dash.row + dash.kind.pivot[0], dash.column + dash.kind.pivot[1]
    next_places = ((row + head[0], column + head[1], head) for head in dash.kind.next_heads)
    return [places[place] for place in next_places if place in places]


def fitting_dashes(image: np.ndarray, grey: int) -> Iterator[Dash]:
    """Yield dashes where the image is as bright as a dash, or brighter at its dimmer pixels."""
    padded = np.pad(image, EDGE)
    for kind in kinds():
        fits = np.ones_like(image, dtype=bool)
        for (down, right), level in dash_light(kind.line).items():
            rows, columns = EDGE + down, EDGE + right
            shifted = padded[rows : rows + SIDE, columns : columns + SIDE]
            fits &= shifted == grey if level == 255 else shifted >= level * grey // 255
        for row, column in np.argwhere(fits).tolist():
            yield Dash(row, column, kind)


@cache
def kinds() -> tuple[DashKind, ...]:
    """Return the first dashes in all whole degrees, without duplicates, and the later dashes."""
    heads_by_shape: dict[tuple[Offset, Offset], frozenset[Offset]] = {}
    for heading in map(direction, range(360)):
        end = dash_end(heading)
        shape = end, (end[0] - round_half_up(heading[0]), end[1] - round_half_up(heading[1]))
        heads_by_shape[shape] = heads_by_shape.get(shape, frozenset()) | next_heads(heading)
    return (
        *(DashKind(*shape, heads, None) for shape, heads in heads_by_shape.items()),
        *map(later_dash, HEAD_OFFSETS),
    )


def later_dash(head: Offset) -> DashKind:
    """Return the kind of a dash that is not the first of its contour."""
    heading = head[0] / math.hypot(*head), head[1] / math.hypot(*head)
    down, right = dash_end(heading)
    return DashKind((-down, -right), (down - head[0], right - head[1]), next_heads(heading), head)


def direction(degrees: int) -> tuple[float, float]:
    """Return a direction, rounded to six digits so that halves are exact."""
    return round(math.sin(math.radians(degrees)), 6), round(math.cos(math.radians(degrees)), 6)


def dash_end(heading: tuple[float, float]) -> Offset:
    """Return the end of a dash: two pixels in half pixels, or four pixels, from pivot to pivot, in pixels."""
    return round_half_up(4 * heading[0]), round_half_up(4 * heading[1])


def next_heads(heading: tuple[float, float]) -> frozenset[Offset]:
    return frozenset(head for head in HEAD_OFFSETS if heading[0] * head[0] + heading[1] * head[1] > 1e-2)


def round_half_up(number: float) -> int:
    """Round to the nearest whole number, halves up."""
    return math.floor(number + 0.5)


@cache
def coverage(halves: frozenset[Offset]) -> dict[Offset, int]:
    """Return sixteenths of light of each pixel: a half pixel lights its pixel, or neighbours by halves."""
    shares = {
        (down, right): sum(max(0, 2 - abs(2 * down - y)) * max(0, 2 - abs(2 * right - x)) for y, x in halves)
        for down, right in NEIGHBOURHOOD
    }
    return {place: share for place, share in shares.items() if share}


@cache
def line(end: Offset) -> frozenset[Offset]:
    """Return the half pixels nearest to a line from (0, 0): one in each row or, if it is flat, column."""
    steps = max(map(abs, end))
    return frozenset(
        (round_half_up(step * end[0] / steps), round_half_up(step * end[1] / steps))
        for step in range(steps + 1)
    )


@cache
def dash_light(end: Offset) -> dict[Offset, int]:
    """Return the light of a dash relative to its anchor, at most 255."""
    return scale_light(coverage(line(end)))


@cache
def disc_light() -> dict[Offset, int]:
    """Return the light of a filled circle of radius 1.5 pixels."""
    return scale_light(coverage(frozenset((y, x) for y, x in NEIGHBOURHOOD if math.hypot(y, x) <= 3)))


def scale_light(shares: dict[Offset, int]) -> dict[Offset, int]:
    return {place: 255 * share // max(shares.values()) for place, share in shares.items()}


def paint(things: Iterable[tuple[Offset, dict[Offset, int], int]]) -> np.ndarray:
    """Paint things by place, light and grey level; the brighter pixel wins, and the outside is cut off."""
    image = np.zeros((SIDE, SIDE), dtype=int)
    for (row, column), light, grey in things:
        for (down, right), level in light.items():
            position = row + down, column + right
            if min(position) >= 0 and max(position) < SIDE:
                image[position] = max(image[position], level * grey // 255)
    return image


def paint_contours(*contours: Contour) -> np.ndarray:
    """Return the image of some contours together."""
    return np.maximum.reduce([np.zeros((SIDE, SIDE), dtype=int), *(contour.image for contour in contours)])


def are_apart(*contours: Contour) -> bool:
    """Return whether no dash covers a pixel of another contour or a pixel next to it."""
    covered = [
        {
            (dash.row + down, dash.column + right)
            for dash in contour.dashes
            for (down, right), share in coverage(line(dash.kind.line)).items()
            if share >= MIN_SHARE
        }
        for contour in contours
    ]
    return not any(
        (row + down, column + right) in other_pixels
        for pixels, other_pixels in combinations(covered, 2)
        for row, column in pixels
        for down, right in ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))
    )
