"""Compute paddles, the dashes of contours, as tables over all possible directions.

All values are integers or results of single additions, products, quotients and square roots of float64, which
are the same on every machine. The one exception is the sine of integer degrees. It is rounded to multiples of
2^-20, so that mathematical libraries, which differ in the last of 53 bits, agree.
"""

import math
from dataclasses import dataclass

import numpy as np

LENGTH = 2
"""Pixels from the tail of a paddle to its head."""
MARGIN = 1
"""Distance in pixels of a paddle from other paddles of its contour, and from all other contours."""
FINE_SCALE = 2
"""Antialias scale: lines are drawn at this scale, one fine pixel thick, and then reduced."""
REACH = 3
"""Number of pixels of a stamp on each side of its anchor."""
SIZE = 2 * REACH + 1
DEGREES = 360
"""Number of directions of a first paddle, in integer degrees. The directions of the ring follow them."""
_SCALE = 2**20
_TRIANGULAR_WEIGHTS = np.asarray([1, 2, 1])
_COVERAGE_MIN = 3
"""Least coverage, of 16, of a pixel that belongs to a paddle."""

RING = np.asarray(
    [
        (y, x)
        for y in range(-4, 5)
        for x in range(-4, 5)
        # The distance is 3 after rounding: 2.5^2 < y^2 + x^2 < 3.5^2.
        if 25 < 4 * (y * y + x * x) < 49
    ]
)
"""int64, 16 x 2: possible positions of a paddle's head relative to its pivot, in pixels (down, right)."""


@dataclass(frozen=True, slots=True)
class PaddleTables:
    """Properties of a paddle by its direction, which is the first axis of each table."""

    pivot: np.ndarray
    """int64, D x 2: from the anchor to the pivot, `MARGIN` before the tail."""
    step: np.ndarray
    """int64, D x 2: offset from the pivot of each paddle to that of the next one."""
    line: np.ndarray
    """int64, D x 2: from the anchor to the other end, in fine pixels."""
    image: np.ndarray
    """uint8, D x SIZE x SIZE: brightness of the paddle around its anchor, at most 255."""
    ink: np.ndarray
    """uint64, D x SIZE: rows of the covered pixels, bit c for column c of the stamp."""
    band: np.ndarray
    """uint64, D x SIZE: rows of the covered pixels with their margin."""
    weights: np.ndarray
    """int64, D x 16: weight of each direction of the ring as the next one, the squared cosine of the turn."""


def tables() -> PaddleTables:
    """Return the tables; first paddles of a contour are anchored at their tail, all others at their head."""
    unit = np.asarray([*map(_unit_vector, range(DEGREES)), *map(_normalise, RING.tolist())])
    is_first_half = np.arange(len(unit)) < DEGREES
    line = np.where(is_first_half[:, None], 1, -1) * _round(FINE_SCALE * LENGTH * unit)
    images, inks, bands = zip(*map(_stamp, line.tolist()), strict=True)
    # Add products one by one, because a matrix product may be rounded differently on another machine.
    turn_cosines = unit[:, None, 0] * unit[DEGREES:, 0] + unit[:, None, 1] * unit[DEGREES:, 1]
    forward_cosines = np.maximum(turn_cosines, 0.0)
    from_head = np.concatenate([np.zeros((DEGREES, 2), dtype=np.int64), RING])
    return PaddleTables(
        pivot=np.where(is_first_half[:, None], -_round(MARGIN * unit), -from_head),
        step=_round((LENGTH + 2 * MARGIN) * unit),
        line=line,
        image=np.stack(images),
        ink=np.stack(inks),
        band=np.stack(bands),
        weights=_round(forward_cosines * forward_cosines * _SCALE),
    )


def disc(radius_halves: int) -> np.ndarray:
    """Return a filled circle of `radius_halves` / 2 pixels, uint8, SIZE x SIZE."""
    fine = np.zeros((FINE_SCALE * SIZE + 1, FINE_SCALE * SIZE + 1), dtype=np.int64)
    for y in range(-FINE_SCALE * REACH, FINE_SCALE * REACH + 1):
        for x in range(-FINE_SCALE * REACH, FINE_SCALE * REACH + 1):
            # In fine pixels the radius is FINE * radius_halves / 2.
            fine[_fine_index(y), _fine_index(x)] = 4 * (y * y + x * x) <= (FINE_SCALE * radius_halves) ** 2
    return _brightness(_reduce(fine))


def circle(degree: int, radius: int) -> tuple[int, int]:
    """Return the pixel of a circle around (0, 0)."""
    down, right = _round(radius * np.asarray([_unit_vector(degree)]))[0].tolist()
    return down, right


def _unit_vector(degree: int) -> tuple[float, float]:
    angle = math.radians(degree)
    return round(math.sin(angle) * _SCALE) / _SCALE, round(math.cos(angle) * _SCALE) / _SCALE


def _normalise(vector: list[int]) -> tuple[float, float]:
    down, right = vector
    length = math.sqrt(down * down + right * right)
    return down / length, right / length


def _round(values: np.ndarray) -> np.ndarray:
    """Round to the nearest integer, halves up."""
    return np.floor(values + 0.5).astype(np.int64)


def _fine_index(pixel: int) -> int:
    """Return the array index of a fine pixel that is given relative to the middle of a stamp."""
    return pixel + FINE_SCALE * REACH + 1


def _stamp(line: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw a line from the anchor to fine pixel `line`; return brightness, pixels, and pixels with margin."""
    fine = np.zeros((FINE_SCALE * SIZE + 1, FINE_SCALE * SIZE + 1), dtype=np.int64)
    steps = max(map(abs, line))
    for step in range(steps + 1):
        down, right = ((2 * step * end + steps) // (2 * steps) for end in line)
        fine[_fine_index(down), _fine_index(right)] = 1
    coverage = _reduce(fine)
    ink = coverage >= _COVERAGE_MIN
    band = np.zeros_like(ink)
    for y in range(-MARGIN, MARGIN + 1):
        for x in range(-MARGIN, MARGIN + 1):
            if y * y + x * x <= MARGIN * MARGIN:
                # The ink never touches the edge of its stamp, so `roll` does not wrap any pixel around.
                band |= np.roll(ink, (y, x), (0, 1))
    return _brightness(coverage), _rows(ink), _rows(band)


def _reduce(fine: np.ndarray) -> np.ndarray:
    """Reduce fine pixels to pixels: sums with triangular weights, 16 where all fine pixels are set."""
    total = np.zeros((SIZE, SIZE), dtype=np.int64)
    for y, down in enumerate(_TRIANGULAR_WEIGHTS.tolist()):
        for x, right in enumerate(_TRIANGULAR_WEIGHTS.tolist()):
            total += (
                down
                * right
                * fine[y : y + FINE_SCALE * SIZE : FINE_SCALE, x : x + FINE_SCALE * SIZE : FINE_SCALE]
            )
    return total


def _brightness(coverage: np.ndarray) -> np.ndarray:
    """Return brightness scaled so that the brightest pixel has 255."""
    return np.asarray(coverage * 255 // coverage.max(), dtype=np.uint8)


def _rows(pixels: np.ndarray) -> np.ndarray:
    bits = np.uint64(1) << np.arange(SIZE, dtype=np.uint64)
    return np.asarray((pixels * bits).sum(axis=1), dtype=np.uint64)
