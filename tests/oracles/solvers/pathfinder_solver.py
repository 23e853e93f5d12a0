"""Pathfinder images taken apart: which dashes, contours and discs give exactly these pixels?

Sees grey levels alone. Every place and direction in which a dash would fit is a candidate; one leads to
another that lies ahead where the law lets a contour go on; of the chains, two long ones, some short ones and
two discs must together paint the image, pixel for pixel. Then the answer is read off: whether both discs lie
on one long chain. An image that nothing explains is faulty.

Pixels tell all: of 2,000 images of 6 paddles and 2,000 of 9 and 1,500 of 14 none was misread. Two, of 6, have
explanations with either answer: where long contours meet, their ends may be exchanged.

Shares the published law with the task, no code: a dash is a line of 2 pixels from a whole pixel, the pivot
behind it, from which it may turn, is 1 pixel before its tail, the next one as far beyond its head; heads lie
3 pixels from their pivots, both rounded to whole pixels.
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
"""No dash reaches further than this from its anchor."""
LONG, SHORT, MARKED = 191, 255, 128
"""Grey levels of long contours, short ones and discs."""
VISIBLE = 3
"""Sixteenths of a pixel from which on it belongs to a dash, of which other contours keep clear."""
AROUND = tuple(product(range(-EDGE, EDGE + 1), repeat=2))
RING = tuple((down, right) for down, right in AROUND if 2.5 < math.hypot(down, right) < 3.5)
"""Heads of later dashes, seen from their pivots."""

Step = tuple[int, int]
"""Down and right."""


class Kind(NamedTuple):
    """How a dash can lie."""

    line: Step
    """From its anchor to its other end, in half pixels."""
    pivot: Step
    """From its anchor to the next pivot."""
    ahead: frozenset[Step]
    """Where, seen from that, the next head can be: not in a right angle or more."""
    head: Step | None
    """Its own head, its anchor, from the pivot before; None for a first one, anchored at its tail."""


class Dash(NamedTuple):
    row: int
    column: int
    kind: Kind


class Contour(NamedTuple):
    dashes: tuple[Dash, ...]
    image: np.ndarray
    """What it alone would give."""

    @property
    def ends(self) -> tuple[Step, Step]:
        """Its tail and its head, where discs can be."""
        return self.dashes[0][:2], self.dashes[-1][:2]


class Scene(NamedTuple):
    """One explanation of an image."""

    long: tuple[Contour, Contour]
    short: tuple[Contour, ...]
    together: bool


def solve(text: str, contour_length: int = 9) -> int:
    return answer(np.asarray(text.split(), dtype=int).reshape(SIDE, SIDE), contour_length)


def answer(image: np.ndarray, length: int) -> int:
    """Whether both discs are on one of the two contours of so many dashes."""
    answers = {scene.together for scene in scenes(image, length)}
    assert answers, "contours and discs must explain every pixel"
    assert len(answers) == 1, "an image must have one answer"
    return int(answers.pop())


def scenes(image: np.ndarray, length: int) -> Iterator[Scene]:
    """All that would give this image."""
    # Which way round a short one was drawn makes no difference.
    alike = {contour.image.tobytes(): contour for contour in contours(image, SHORT, length // 3)}
    shorts = list(covering(image, list(alike.values())))
    for one, other in combinations(contours(image, LONG, length), 2):
        for short in shorts:
            lines = together(one, other, *short)
            for begun, ended in product((one, other), repeat=2):
                marks = paint([(begun.ends[0], disc(), MARKED), (ended.ends[1], disc(), MARKED)])
                if (np.maximum(lines, marks) == image).all() and apart(one, other, *short):
                    yield Scene((one, other), short, begun is ended)


def covering(
    image: np.ndarray, choices: list[Contour], chosen: tuple[Contour, ...] = ()
) -> Iterator[tuple[Contour, ...]]:
    """Short contours that account for all that is too bright for long ones."""
    missing = np.argwhere((image > LONG) & (together(*chosen) < image))
    if not len(missing):
        yield chosen
        return
    place = tuple(missing[0].tolist())
    for choice in choices:
        if choice.image[place] == image[place]:
            yield from covering(image, choices, (*chosen, choice))


def contours(image: np.ndarray, grey: int, length: int) -> list[Contour]:
    """Chains of so many dashes that the image has room for, of those that look alike one."""
    fitting = list(fitting_dashes(image, grey))
    places = {(dash.row, dash.column, dash.kind.head): dash for dash in fitting}
    chains = [(dash,) for dash in fitting if dash.kind.head is None]
    for _ in range(length - 1):
        chains = [(*chain, dash) for chain in chains for dash in following(chain[-1], places)]
    found = [
        Contour(chain, paint((dash[:2], look(dash.kind.line), grey) for dash in chain)) for chain in chains
    ]
    return list({(contour.ends, contour.image.tobytes()): contour for contour in found}.values())


def following(dash: Dash, places: dict[tuple[int, int, Step | None], Dash]) -> list[Dash]:
    """What can come next."""
    row, column = dash.row + dash.kind.pivot[0], dash.column + dash.kind.pivot[1]
    next_places = ((row + head[0], column + head[1], head) for head in dash.kind.ahead)
    return [places[place] for place in next_places if place in places]


def fitting_dashes(image: np.ndarray, grey: int) -> Iterator[Dash]:
    """Wherever the image is as bright as a dash or, elsewhere than at its brightest pixels, brighter."""
    wide = np.pad(image, EDGE)
    for kind in kinds():
        fits = np.ones_like(image, dtype=bool)
        for (down, right), light in look(kind.line).items():
            rows, columns = EDGE + down, EDGE + right
            seen = wide[rows : rows + SIDE, columns : columns + SIDE]
            fits &= seen == grey if light == 255 else seen >= light * grey // 255
        for row, column in np.argwhere(fits).tolist():
            yield Dash(row, column, kind)


@cache
def kinds() -> tuple[Kind, ...]:
    """First dashes in all whole degrees, those that are drawn alike as one, and later ones."""
    alike: dict[tuple[Step, Step], frozenset[Step]] = {}
    for heading in map(toward, range(360)):
        end = reach(heading)
        drawn = end, (end[0] - whole(heading[0]), end[1] - whole(heading[1]))
        alike[drawn] = alike.get(drawn, frozenset()) | ahead(heading)
    return (*(Kind(*drawn, heads, None) for drawn, heads in alike.items()), *map(later, RING))


def later(head: Step) -> Kind:
    """A dash that is not the first."""
    heading = head[0] / math.hypot(*head), head[1] / math.hypot(*head)
    down, right = reach(heading)
    return Kind((-down, -right), (down - head[0], right - head[1]), ahead(heading), head)


def toward(degrees: int) -> tuple[float, float]:
    """Six digits: what should be a half is one."""
    return round(math.sin(math.radians(degrees)), 6), round(math.cos(math.radians(degrees)), 6)


def reach(heading: tuple[float, float]) -> Step:
    """Two pixels in half pixels, and as many as from one pivot to the next in pixels."""
    return whole(4 * heading[0]), whole(4 * heading[1])


def ahead(heading: tuple[float, float]) -> frozenset[Step]:
    return frozenset(head for head in RING if heading[0] * head[0] + heading[1] * head[1] > 1e-2)


def whole(number: float) -> int:
    """The nearest whole number, of two the greater."""
    return math.floor(number + 0.5)


@cache
def coverage(halves: frozenset[Step]) -> dict[Step, int]:
    """Sixteenths of each pixel: a half pixel gives all its light to where it is, or halves to neighbours."""
    shares = {
        (down, right): sum(max(0, 2 - abs(2 * down - y)) * max(0, 2 - abs(2 * right - x)) for y, x in halves)
        for down, right in AROUND
    }
    return {place: share for place, share in shares.items() if share}


@cache
def line(end: Step) -> frozenset[Step]:
    """The half pixels nearest to a line from (0, 0): one in each row or, if it is flat, column."""
    steps = max(map(abs, end))
    return frozenset(
        (whole(step * end[0] / steps), whole(step * end[1] / steps)) for step in range(steps + 1)
    )


@cache
def look(end: Step) -> dict[Step, int]:
    """Light of a dash from its anchor on, 255 at most."""
    return scaled(coverage(line(end)))


@cache
def disc() -> dict[Step, int]:
    """Light of a filled circle of radius 1.5 pixels."""
    return scaled(coverage(frozenset((y, x) for y, x in AROUND if math.hypot(y, x) <= 3)))


def scaled(shares: dict[Step, int]) -> dict[Step, int]:
    return {place: 255 * share // max(shares.values()) for place, share in shares.items()}


def paint(things: Iterable[tuple[Step, dict[Step, int], int]]) -> np.ndarray:
    """Place, light and grey level of each; the brighter wins, and what is outside is cut off."""
    image = np.zeros((SIDE, SIDE), dtype=int)
    for (row, column), light, grey in things:
        for (down, right), level in light.items():
            here = row + down, column + right
            if min(here) >= 0 and max(here) < SIDE:
                image[here] = max(image[here], level * grey // 255)
    return image


def together(*parts: Contour) -> np.ndarray:
    """The image of some contours."""
    return np.maximum.reduce([np.zeros((SIDE, SIDE), dtype=int), *(part.image for part in parts)])


def apart(*parts: Contour) -> bool:
    """Whether no dash covers, or has beside it, what one of another contour covers."""
    covered = [
        {
            (dash.row + down, dash.column + right)
            for dash in part.dashes
            for (down, right), share in coverage(line(dash.kind.line)).items()
            if share >= VISIBLE
        }
        for part in parts
    ]
    return not any(
        (row + down, column + right) in other
        for one, other in combinations(covered, 2)
        for row, column in one
        for down, right in ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))
    )
