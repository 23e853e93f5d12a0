"""Paddles, the dashes of which contours are made, as tables over all directions they can have.

Everything is a whole number or comes from single additions, products, quotients and square roots of float64,
which are the same on every machine. The one exception is the sine of whole degrees: it is rounded to
multiples of 2^-20, so coarse that mathematical libraries, which disagree in the last of 53 bits, agree.
"""

import math
from dataclasses import dataclass

import numpy as np

LENGTH = 2
"""Pixels from the tail of a paddle to its head."""
MARGIN = 1
"""Pixels that a paddle keeps to the ends of its contour's others, and to all of any other contour."""
FINE = 2
"""Lines are drawn this much larger, one fine pixel thick, and then made smaller (antialias scale)."""
REACH = 3
"""A stamp shows this many pixels on each side of its anchor."""
SIZE = 2 * REACH + 1
DEGREES = 360
"""Directions 0 .. 359 are those of a first paddle, in whole degrees; those of the ring follow."""
_SCALE = 2**20
_TENT = np.asarray([1, 2, 1])
_VISIBLE = 3
"""Coverage, of 16, from which on a pixel belongs to a paddle."""

RING = np.asarray(
    [
        (y, x)
        for y in range(-4, 5)
        for x in range(-4, 5)
        # The distance is 3, rounded: 2.5^2 < y^2 + x^2 < 3.5^2.
        if 25 < 4 * (y * y + x * x) < 49
    ]
)
"""int64, 16 x 2: where the head of a paddle can be, seen from its pivot, in pixels (down, right)."""


@dataclass(frozen=True, slots=True)
class PaddleTables:
    """What is known of a paddle from its direction alone; the first axis of each is the direction."""

    pivot: np.ndarray
    """int64, D x 2: from the anchor to the pivot, `MARGIN` before the tail."""
    step: np.ndarray
    """int64, D x 2: from the pivot to that of the next paddle."""
    line: np.ndarray
    """int64, D x 2: from the anchor to the other end, in fine pixels."""
    image: np.ndarray
    """uint8, D x SIZE x SIZE: its brightness around the anchor, 255 at most."""
    ink: np.ndarray
    """uint64, D x SIZE: rows of the pixels it covers, bit c for column c of the stamp."""
    band: np.ndarray
    """uint64, D x SIZE: the same with its margin."""
    weights: np.ndarray
    """int64, D x 16: chance of each direction of the ring to come next, the squared cosine of the turn."""


def tables() -> PaddleTables:
    """For first paddles, anchored at the tail, and then for those of the ring, anchored at the head."""
    unit = np.asarray([*map(_of_degree, range(DEGREES)), *map(_normed, RING.tolist())])
    first = np.arange(len(unit)) < DEGREES
    line = np.where(first[:, None], 1, -1) * _rounded(FINE * LENGTH * unit)
    images, inks, bands = zip(*map(_stamp, line.tolist()), strict=True)
    # Products and their sum one by one: a matrix product may be rounded otherwise on another machine.
    turn = unit[:, None, 0] * unit[DEGREES:, 0] + unit[:, None, 1] * unit[DEGREES:, 1]
    ahead = np.maximum(turn, 0.0)
    from_head = np.concatenate([np.zeros((DEGREES, 2), dtype=np.int64), RING])
    return PaddleTables(
        pivot=np.where(first[:, None], -_rounded(MARGIN * unit), -from_head),
        step=_rounded((LENGTH + 2 * MARGIN) * unit),
        line=line,
        image=np.stack(images),
        ink=np.stack(inks),
        band=np.stack(bands),
        weights=_rounded(ahead * ahead * _SCALE),
    )


def disc(radius_halves: int) -> np.ndarray:
    """A filled circle of `radius_halves` / 2 pixels, uint8, SIZE x SIZE."""
    fine = np.zeros((FINE * SIZE + 1, FINE * SIZE + 1), dtype=np.int64)
    for y in range(-FINE * REACH, FINE * REACH + 1):
        for x in range(-FINE * REACH, FINE * REACH + 1):
            # In fine pixels the radius is FINE * radius_halves / 2.
            fine[_fine(y), _fine(x)] = 4 * (y * y + x * x) <= (FINE * radius_halves) ** 2
    return _brightness(_smaller(fine))


def circle(degree: int, radius: int) -> tuple[int, int]:
    """The pixel of a circle around (0, 0)."""
    down, right = _rounded(radius * np.asarray([_of_degree(degree)]))[0].tolist()
    return down, right


def _of_degree(degree: int) -> tuple[float, float]:
    angle = math.radians(degree)
    return round(math.sin(angle) * _SCALE) / _SCALE, round(math.cos(angle) * _SCALE) / _SCALE


def _normed(vector: list[int]) -> tuple[float, float]:
    down, right = vector
    length = math.sqrt(down * down + right * right)
    return down / length, right / length


def _rounded(values: np.ndarray) -> np.ndarray:
    """To the nearest whole number, halves up."""
    return np.floor(values + 0.5).astype(np.int64)


def _fine(place: int) -> int:
    """Index of a fine pixel, seen from the middle of a stamp."""
    return place + FINE * REACH + 1


def _stamp(line: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Brightness, pixels and pixels with margin of a line from the anchor to the fine pixel `line`."""
    fine = np.zeros((FINE * SIZE + 1, FINE * SIZE + 1), dtype=np.int64)
    steps = max(map(abs, line))
    for step in range(steps + 1):
        down, right = ((2 * step * end + steps) // (2 * steps) for end in line)
        fine[_fine(down), _fine(right)] = 1
    coverage = _smaller(fine)
    ink = coverage >= _VISIBLE
    band = np.zeros_like(ink)
    for y in range(-MARGIN, MARGIN + 1):
        for x in range(-MARGIN, MARGIN + 1):
            if y * y + x * x <= MARGIN * MARGIN:
                # The ink never touches the edge of its stamp, so nothing comes in again on the other side.
                band |= np.roll(ink, (y, x), (0, 1))
    return _brightness(coverage), _rows(ink), _rows(band)


def _smaller(fine: np.ndarray) -> np.ndarray:
    """Each pixel from the fine ones around its middle, with triangular weights: 16 where all are set."""
    total = np.zeros((SIZE, SIZE), dtype=np.int64)
    for y, down in enumerate(_TENT.tolist()):
        for x, right in enumerate(_TENT.tolist()):
            total += down * right * fine[y : y + FINE * SIZE : FINE, x : x + FINE * SIZE : FINE]
    return total


def _brightness(coverage: np.ndarray) -> np.ndarray:
    """The brightest pixel at 255."""
    return np.asarray(coverage * 255 // coverage.max(), dtype=np.uint8)


def _rows(pixels: np.ndarray) -> np.ndarray:
    bits = np.uint64(1) << np.arange(SIZE, dtype=np.uint64)
    return np.asarray((pixels * bits).sum(axis=1), dtype=np.uint64)
