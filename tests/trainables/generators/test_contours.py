"""Paddles and contours of generated pathfinder images: what is drawn, and how often."""

import random

import numpy as np
import pytest

from tests.oracles.solvers import pathfinder_solver as pixels
from trainables.generators import paddles as paddle_shapes
from trainables.generators.contours import DISTRACTOR_PADDLES, Drawings, drawings, paddles, render


def test_the_ring_and_its_directions() -> None:
    """Sixteen places three pixels away; straight on is the likeliest, backwards and sideways never chosen."""
    assert len(paddle_shapes.RING) == 16
    assert np.abs(np.hypot(*paddle_shapes.RING.T) - 3).max() < 0.5
    weights = paddles().weights[paddle_shapes.DEGREES :]
    assert weights.argmax(1).tolist() == list(range(16))
    angle = np.arctan2(*paddle_shapes.RING.T)
    turn = np.cos(angle[:, None] - angle)
    np.testing.assert_allclose(weights / 2**20, np.where(turn > 0, turn, 0) ** 2, atol=1e-6)


def test_no_sine_is_near_a_rounding_boundary() -> None:
    """So that libraries which disagree in the last bits give the same tables: 10^-16 against 10^-4."""
    scaled = np.sin(np.deg2rad(np.arange(360))) * 2**20
    assert np.abs(np.abs(scaled - np.floor(scaled)) - 0.5).min() > 1e-4


def test_a_paddle_is_two_pixels_long_and_thin() -> None:
    """Its light is that of a line of 2 pixels, smoothed: 3 to 4 pixels in sum, wherever it points."""
    light = paddles().image.astype(int).sum((1, 2)) / 255
    assert paddles().image.max((1, 2)).tolist() == [255] * len(light)
    assert 2 < light.min() < light.max() < 4.5
    assert np.abs(np.hypot(*paddles().line.T) / 2 - 2).max() < 0.4


def line(direction: int) -> pixels.Step:
    """From the anchor of a paddle with that direction to its other end, in half pixels."""
    first, later = range(paddle_shapes.DEGREES), pixels.RING
    if direction in first:
        return pixels.reach(pixels.toward(direction))
    return pixels.later(later[direction - len(first)]).line


def shuffled(drawn: Drawings, number: int) -> list[tuple[pixels.Step, dict[pixels.Step, int], int]]:
    """Everything in an image, in random order: places, light and grey level, not what belongs together."""
    things = [
        ((row, column), pixels.look(line(direction)), grey)
        for contours, grey in ((drawn.targets, pixels.LONG), (drawn.distractors, pixels.SHORT))
        for row, column, direction in contours[number].reshape(-1, 3).tolist()
        if direction >= 0
    ]
    begun = drawn.marked[number]
    ended = begun if drawn.labels[number] else 1 - begun
    for row, column in (drawn.tails[number, begun], drawn.targets[number, ended, -1, :2]):
        things.append(((int(row), int(column)), pixels.disc(), pixels.MARKED))
    random.Random(number).shuffle(things)
    return things


@pytest.mark.parametrize("length", [6, 9, 14])
def test_images_show_what_is_drawn_and_nothing_else(length: int) -> None:
    """Painted again pixel by pixel: lines, smoothing, contrasts, what covers what."""
    drawn = next(drawings(length, 0, "test"))
    drawn = drawn.take(np.arange(min(60, len(drawn))))
    for number, image in enumerate(render(drawn)):
        assert (pixels.paint(shuffled(drawn, number)) == image).all()


@pytest.mark.parametrize(("length", "images"), [(6, 60), (9, 200), (14, 80)])
def test_contours_are_found_again_in_the_pixels(length: int, images: int) -> None:
    """Those that were drawn, each of its length, smooth and clear of the others, and marked as labelled.

    Hundreds of images: a fault in one of fifty goes unseen once in a thousand times.
    """
    drawn = next(drawings(length, 0, "test")).take(np.arange(images))
    for number, (image, label) in enumerate(zip(render(drawn), drawn.labels.tolist(), strict=True)):
        found = list(pixels.scenes(image, length))
        assert {int(scene.together) for scene in found} == {label}
        asked = [
            pixels.paint(
                ((row, column), pixels.look(line(direction)), grey) for row, column, direction in contour
            )
            for contours, grey in ((drawn.targets, pixels.LONG), (drawn.distractors, pixels.SHORT))
            for contour in contours[number].tolist()
            if contour[0][2] >= 0
        ]
        assert 2 <= len(asked) <= 2 + DISTRACTOR_PADDLES // (length // 3)
        assert sorted(contour.image.tobytes() for contour in (*found[0].long, *found[0].short)) == sorted(
            contour.tobytes() for contour in asked
        )


def test_contours_begin_as_published() -> None:
    """The first in the middle 4 x 4 pixels, the second 7 pixels away."""
    tails = next(drawings(6, 0, "train")).tails.astype(int)
    assert set(tails[:, 0].flatten().tolist()) == {14, 15, 16, 17}
    away = np.hypot(*(tails[:, 1] - tails[:, 0]).T)
    assert np.abs(away - 7).max() < 0.75


def test_labels_are_balanced_and_independent_of_what_is_marked() -> None:
    """2,450 images: a half within five standard errors of 0.0101, odds below 10^-6."""
    drawn = next(drawings(6, 0, "train"))
    assert len(drawn) == 2450
    for share in (drawn.labels.mean(), drawn.marked.mean(), (drawn.labels == drawn.marked).mean()):
        assert share == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(len(drawn)))


def test_brightness_does_not_give_the_label_away() -> None:
    """Light in all of an image, by label: equal within five standard errors."""
    drawn = next(drawings(6, 0, "train"))
    light = render(drawn).reshape(len(drawn), -1).sum(1)
    one, other = (light[drawn.labels == label] for label in (0, 1))
    error = np.sqrt(one.var() / len(one) + other.var() / len(other))
    assert abs(one.mean() - other.mean()) < 5 * error
