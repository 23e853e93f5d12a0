"""Generate contours of the pathfinder images, many images at a time, and draw them.

The occupied pixels of an image are one 64-bit number per row, so that a shift and an AND tests whether a
paddle fits. The distributions and their source are described in `tasks.pathfinder`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from itertools import count

import numpy as np

from trainables.data.draws import draw_integers, uniform
from trainables.generators.images import SIDE
from trainables.generators.paddles import DEGREES, REACH, RING, SIZE, PaddleTables, circle, disc, tables
from trainables.streams import numpy_stream

PADDING = 1
"""Number of free pixels at the edge of an image."""
SEED_DISTANCE = 7
"""Distance in pixels between the starts of the two long contours. The first start is twice as far from each
edge.
"""
DISTRACTOR_PADDLES = 20
"""Total paddles of all short contours, rounded down to complete contours."""
DISTRACTOR_ATTEMPTS = 5
"""Number of starts tried for each short contour before it is omitted."""
TARGET_GREY, DISTRACTOR_GREY, MARKER_GREY = 191, 255, 128
"""Grey levels for contrasts 2 x 0.75, 2 and 1, on a scale that ends at 2."""
MARKER_RADIUS_HALVES = 3
ROUND = 8192
"""Number of pairs of contours started at once; another value would change the data."""
KEPT_ROUNDS = 24
"""Number of cached first rounds, of at most half a megabyte each: those of all splits of eight tasks."""
EDGE = 4
"""Number of rows and columns around the image that always count as occupied."""
_ALL = np.uint64(2**64 - 1)
_INSIDE = np.uint64(((1 << (SIDE - 2 * PADDING)) - 1) << (EDGE + PADDING))
_ROWS = np.arange(-REACH, REACH + 1)


@dataclass(frozen=True, slots=True)
class Drawings:
    """N images and their contours. A paddle is row, column and direction of its anchor (`PaddleTables`)."""

    labels: np.ndarray
    """int16: whether the marked ends belong to the same contour."""
    targets: np.ndarray
    """int16, N x 2 x L x 3: the two long contours, paddle by paddle."""
    tails: np.ndarray
    """int16, N x 2 x 2: the starts of the long contours."""
    marked: np.ndarray
    """int16: index of the contour whose start is marked."""
    distractors: np.ndarray
    """int16, N x D x l x 3: the short contours; -1 for a contour that did not fit."""

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: np.ndarray) -> "Drawings":
        """Return the images at `indices`, in that order."""
        return Drawings(**{field.name: getattr(self, field.name)[indices] for field in fields(self)})


@dataclass(slots=True)
class _Contours:
    """The growing ends of N contours, one in each of N images."""

    pivot: np.ndarray
    """int64, N x 2: pivot of the next paddle."""
    direction: np.ndarray
    """int64: direction of the last paddle."""
    last: np.ndarray
    """uint64, N x rows: the last paddle with its margin, which the next one may touch."""

    @classmethod
    def start(cls, tail: np.ndarray, direction: np.ndarray) -> "_Contours":
        """Return contours that consist of a first paddle, given start (N x 2) and direction (N)."""
        return cls(tail + paddles().pivot[direction], direction, _cover_bands(tail, direction))

    def take(self, indices: np.ndarray) -> "_Contours":
        """Return the contours at `indices`."""
        return _Contours(self.pivot[indices], self.direction[indices], self.last[indices])

    def move(self, indices: np.ndarray, head: np.ndarray) -> None:
        """Append to the contours at `indices` their paddles in `head` (N x 3)."""
        self.pivot[indices] += paddles().step[self.direction[indices]]
        self.direction[indices] = head[indices, 2]
        self.last[indices] = _cover_bands(head[indices, :2], head[indices, 2])


@cache
def paddles() -> PaddleTables:
    """Return the tables of all paddles, computed once per process."""
    return tables()


def drawings(contour_length: int, data_seed: int, split: str) -> Iterator[Drawings]:
    """Yield rounds of images without end; their long contours have `contour_length` paddles."""
    yield _first_round(contour_length, data_seed, split)
    yield from (_draw_round(contour_length, data_seed, split, round_index) for round_index in count(1))


@lru_cache(maxsize=KEPT_ROUNDS)
def _first_round(contour_length: int, data_seed: int, split: str) -> Drawings:
    """Return the first round as read-only arrays; it is cached, because splits of any size begin with it."""
    first_drawings = _draw_round(contour_length, data_seed, split, 0)
    for field in fields(first_drawings):
        getattr(first_drawings, field.name).flags.writeable = False
    return first_drawings


def _draw_round(contour_length: int, data_seed: int, split: str, round_index: int) -> Drawings:
    """Draw `ROUND` pairs of contours; return one image for each pair without a dead end."""
    stream = numpy_stream(data_seed, "pathfinder", contour_length, split, round_index)
    targets, tails, occupied = _draw_pairs(stream, contour_length)
    n = len(targets)
    distractor_length = contour_length // 3
    distractors = [
        _draw_distractors(stream, occupied, distractor_length)
        for _ in range(DISTRACTOR_PADDLES // distractor_length)
    ]
    return Drawings(
        labels=draw_integers(stream, n, 2).astype(np.int16),
        targets=targets,
        tails=tails,
        marked=draw_integers(stream, n, 2).astype(np.int16),
        distractors=np.stack(distractors, axis=1),
    )


def render(drawings: Drawings) -> np.ndarray:
    """Return the images, uint8, N x SIDE x SIDE."""
    padded_side = SIDE + 2 * EDGE
    images = np.zeros((len(drawings), padded_side, padded_side), dtype=np.uint8)
    for contour in range(2):
        for paddle in np.moveaxis(drawings.targets[:, contour], 1, 0):
            _brighten(images, paddle, TARGET_GREY)
    for contours in np.moveaxis(drawings.distractors, 1, 0):
        with_distractor = np.flatnonzero(contours[:, 0, 2] >= 0)
        for paddle in np.moveaxis(contours[with_distractor], 1, 0):
            _brighten(images, paddle, DISTRACTOR_GREY, with_distractor)
    image_indices = np.arange(len(drawings))
    other_contour = np.where(drawings.labels == 1, drawings.marked, 1 - drawings.marked)
    stamp = disc(MARKER_RADIUS_HALVES)[None]
    for place in (
        drawings.tails[image_indices, drawings.marked],
        drawings.targets[image_indices, other_contour, -1, :2],
    ):
        _lighten(images, image_indices, place, stamp, MARKER_GREY)
    return images[:, EDGE:-EDGE, EDGE:-EDGE]


def _brighten(images: np.ndarray, paddle: np.ndarray, grey: int, indices: np.ndarray | None = None) -> None:
    """Draw one paddle (N x 3) into each image, or only into the images at `indices`."""
    image_indices = np.arange(len(images)) if indices is None else indices
    _lighten(images, image_indices, paddle[:, :2], paddles().image[paddle[:, 2]], grey)


def _lighten(
    images: np.ndarray, indices: np.ndarray, anchors: np.ndarray, stamp: np.ndarray, grey: int
) -> None:
    rows = anchors[:, 0, None, None] + EDGE + _ROWS[:, None]
    columns = anchors[:, 1, None, None] + EDGE + _ROWS
    pixels = indices[:, None, None], rows, columns
    images[pixels] = np.maximum(images[pixels], (stamp.astype(np.uint16) * grey // 255).astype(np.uint8))


def _draw_pairs(stream: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return two contours of `length` paddles per image, their starts, and all pixels that they occupy."""
    blocked_pixels = _occupancy_without_contours(ROUND)
    span = SIDE - 4 * SEED_DISTANCE
    first_tail = 2 * SEED_DISTANCE + np.stack(
        [draw_integers(stream, ROUND, span), draw_integers(stream, ROUND, span)], axis=1
    )
    offsets = np.asarray([circle(degree, SEED_DISTANCE) for degree in range(DEGREES)])
    tails = np.stack([first_tail, first_tail + offsets[draw_integers(stream, ROUND, DEGREES)]], axis=1)
    contours = np.zeros((ROUND, 2, length, 3), dtype=np.int16)
    growing: list[_Contours] = []
    can_grow = np.ones(ROUND, dtype=bool)
    for contour in range(2):
        direction = draw_integers(stream, ROUND, DEGREES)
        contours[:, contour, 0] = np.column_stack([tails[:, contour], direction])
        occupied = blocked_pixels if contour == 0 else blocked_pixels | growing[0].last
        can_grow &= ~_find_conflicts(occupied, tails[:, contour], direction, np.arange(ROUND))
        growing.append(_Contours.start(tails[:, contour], direction))
    image = np.arange(ROUND)
    for paddle in range(1, length):
        for contour in range(2):
            surviving = np.flatnonzero(can_grow)
            image, blocked_pixels, growing = (
                image[surviving],
                blocked_pixels[surviving],
                [contours.take(surviving) for contours in growing],
            )
            can_grow, head = _draw_next_paddle(
                stream, blocked_pixels | growing[1 - contour].last, growing[contour]
            )
            surviving = np.flatnonzero(can_grow)
            blocked_pixels[surviving] |= growing[contour].last[surviving]
            contours[image[surviving], contour, paddle] = head[surviving]
            growing[contour].move(surviving, head)
    occupied = blocked_pixels | growing[0].last | growing[1].last
    surviving = np.flatnonzero(can_grow)
    return contours[image[surviving]], tails[image[surviving]].astype(np.int16), occupied[surviving]


def _draw_distractors(stream: np.random.Generator, occupied: np.ndarray, length: int) -> np.ndarray:
    """Draw a short contour into each image and `occupied`: int16, N x `length` x 3, -1 where none fits."""
    contours = np.full((len(occupied), length, 3), -1, dtype=np.int16)
    for _ in range(DISTRACTOR_ATTEMPTS):
        unplaced = np.flatnonzero(contours[:, 0, 2] < 0)
        new_contours, added = _try_contours(stream, occupied[unplaced], length)
        success = new_contours[:, -1, 2] >= 0
        contours[unplaced[success]] = new_contours[success]
        occupied[unplaced[success]] |= added[success]
    return contours


def _try_contours(
    stream: np.random.Generator, occupied: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Try to draw a contour in each image; return its paddles (the last is -1 if it failed) and pixels."""
    contours = np.full((len(occupied), length, 3), -1, dtype=np.int16)
    direction = draw_integers(stream, len(occupied), DEGREES)
    tail, images = _draw_starts(stream, occupied, direction)
    growing = _Contours.start(tail[images], direction[images])
    contours[images, 0] = np.column_stack([tail[images], direction[images]])
    covered = np.zeros_like(occupied)
    for paddle in range(1, length):
        can_grow, head = _draw_next_paddle(stream, occupied[images] | covered[images], growing)
        surviving = np.flatnonzero(can_grow)
        images, head, growing = images[surviving], head[surviving], growing.take(surviving)
        covered[images] |= growing.last
        growing.move(np.arange(len(images)), head)
        contours[images, paddle] = head
    covered[images] |= growing.last
    return contours, covered


def _occupancy_without_contours(n: int) -> np.ndarray:
    """Return the occupied pixels of N empty images: everything outside of the drawable area (uint64)."""
    rows = np.full(SIDE + 2 * EDGE, _ALL)
    rows[EDGE + PADDING : -(EDGE + PADDING)] = ~_INSIDE
    return np.tile(rows, (n, 1))


def _draw_next_paddle(
    stream: np.random.Generator, occupied: np.ndarray, contours: _Contours
) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each contour has space for another paddle, and the drawn paddle (int64, N x 3)."""
    n, ring = len(occupied), len(RING)
    heads = (contours.pivot + paddles().step[contours.direction])[:, None] + RING
    weights = paddles().weights[contours.direction]
    inside = ((heads >= PADDING) & (heads < SIDE - PADDING)).all(axis=2)
    image, ring_position = np.nonzero(inside & (weights > 0))
    blocked = _find_conflicts(occupied, heads[image, ring_position], DEGREES + ring_position, image)
    allowed = np.zeros((n, ring), dtype=bool)
    allowed[image, ring_position] = ~blocked
    chances = np.cumsum(weights * allowed, axis=1)
    thresholds = (uniform(stream, n) * chances[:, -1]).astype(np.int64)
    ring_index = np.minimum((chances <= thresholds[:, None]).sum(axis=1), ring - 1)
    return chances[:, -1] > 0, np.column_stack([heads[np.arange(n), ring_index], DEGREES + ring_index])


def _find_conflicts(
    occupied: np.ndarray, anchors: np.ndarray, direction: np.ndarray, image: np.ndarray
) -> np.ndarray:
    """Return whether paddles anchored at `anchors` (M x 2) would cover occupied pixels in `image` (M)."""
    shift = (anchors[:, 1] + EDGE - REACH).astype(np.uint64)
    conflicts = np.zeros(len(anchors), dtype=bool)
    for row in range(1, SIZE - 1):  # ink never reaches the edge of a stamp
        occupied_row = occupied[image, anchors[:, 0] + (EDGE - REACH + row)]
        conflicts |= ((occupied_row >> shift) & paddles().ink[direction, row]) != 0
    return conflicts


def _cover_bands(anchors: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Return the pixels that paddles and their margins cover (uint64, N x rows)."""
    rows = np.zeros((len(anchors), SIDE + 2 * EDGE), dtype=np.uint64)
    shift = (anchors[:, 1] + EDGE - REACH).astype(np.uint64)
    band_rows = np.arange(len(anchors))[:, None], anchors[:, 0, None] + EDGE + _ROWS
    rows[band_rows] = paddles().band[direction] << shift[:, None]
    return rows


def _draw_starts(
    stream: np.random.Generator, occupied: np.ndarray, direction: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return uniform random starts of first paddles (int64, N x 2), and the images that have a free start."""
    blocked = np.zeros((len(occupied), SIDE), dtype=np.uint64)
    for row in range(SIZE):
        shifted = occupied[:, EDGE - REACH + row : EDGE - REACH + row + SIDE]
        ink = paddles().ink[direction, row]
        for column in range(SIZE):
            covers = ((ink >> np.uint64(column)) & np.uint64(1)).astype(bool)
            # Bit c of a blocked row is column c of the image.
            blocked[covers] |= shifted[covers] >> np.uint64(EDGE - REACH + column)
    columns = np.arange(SIDE, dtype=np.uint64)
    is_free = ((blocked[:, :, None] >> columns) & np.uint64(1) == 0).reshape(len(occupied), SIDE * SIDE)
    number = np.cumsum(is_free, axis=1, dtype=np.int16)
    rank = (uniform(stream, len(is_free)) * number[:, -1]).astype(np.int16)
    column = (number <= rank[:, None]).sum(axis=1)
    return np.column_stack(np.divmod(np.minimum(column, SIDE * SIDE - 1), SIDE)), np.flatnonzero(
        number[:, -1]
    )
