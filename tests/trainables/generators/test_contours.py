"""Paddles and contours of generated pathfinder images have the published shapes and frequencies."""

import random

import numpy as np
import pytest

from tests.oracles.solvers import pathfinder_solver as pixels
from trainables.generators import paddles as paddle_shapes
from trainables.generators.contours import DISTRACTOR_PADDLES, Drawings, drawings, paddles, render


def test_ring_has_sixteen_directions_with_published_probabilities() -> None:
    """Sixteen places are three pixels away; straight on is likeliest, sideways and back impossible."""
    assert len(paddle_shapes.RING) == 16
    assert np.abs(np.hypot(*paddle_shapes.RING.T) - 3).max() < 0.5
    weights = paddles().weights[paddle_shapes.DEGREES :]
    assert weights.argmax(1).tolist() == list(range(16))
    angle = np.arctan2(*paddle_shapes.RING.T)
    turn = np.cos(angle[:, None] - angle)
    np.testing.assert_allclose(weights / 2**20, np.where(turn > 0, turn, 0) ** 2, atol=1e-6)


def test_sines_are_far_from_rounding_boundaries() -> None:
    """Libraries differ by 10^-16, and the distance is 10^-4, so tables are the same everywhere."""
    scaled = np.sin(np.deg2rad(np.arange(360))) * 2**20
    assert np.abs(np.abs(scaled - np.floor(scaled)) - 0.5).min() > 1e-4


def test_paddle_is_a_thin_line_of_two_pixels() -> None:
    """The light is that of a smoothed line of 2 pixels: 3 to 4 pixels in sum, in every direction."""
    light = paddles().image.astype(int).sum((1, 2)) / 255
    assert paddles().image.max((1, 2)).tolist() == [255] * len(light)
    assert 2 < light.min() < light.max() < 4.5
    assert np.abs(np.hypot(*paddles().line.T) / 2 - 2).max() < 0.4


def line(direction: int) -> pixels.Offset:
    """Return the offset from the anchor to the other end of a paddle, in half pixels."""
    first, later = range(paddle_shapes.DEGREES), pixels.HEAD_OFFSETS
    if direction in first:
        return pixels.dash_end(pixels.direction(direction))
    return pixels.later_dash(later[direction - len(first)]).line


def shuffled(drawings_: Drawings, number: int) -> list[tuple[pixels.Offset, dict[pixels.Offset, int], int]]:
    """Return everything in an image in random order: position, light and grey level, without grouping."""
    things = [
        ((row, column), pixels.dash_light(line(direction)), grey)
        for contours, grey in ((drawings_.targets, pixels.LONG), (drawings_.distractors, pixels.SHORT))
        for row, column, direction in contours[number].reshape(-1, 3).tolist()
        if direction >= 0
    ]
    first_contour = drawings_.marked[number]
    ended = first_contour if drawings_.labels[number] else 1 - first_contour
    for row, column in (drawings_.tails[number, first_contour], drawings_.targets[number, ended, -1, :2]):
        things.append(((int(row), int(column)), pixels.disc_light(), pixels.MARKED))
    random.Random(number).shuffle(things)
    return things


@pytest.mark.parametrize("length", [6, 9, 14])
def test_images_equal_painted_drawings(length: int) -> None:
    """The oracle paints pixel by pixel: lines, smoothing, contrasts, and which line covers another."""
    drawings_ = next(drawings(length, 0, "test"))
    drawings_ = drawings_.take(np.arange(min(60, len(drawings_))))
    for number, image in enumerate(render(drawings_)):
        assert (pixels.paint(shuffled(drawings_, number)) == image).all()


@pytest.mark.parametrize(("length", "images"), [(6, 60), (9, 200), (14, 80)])
def test_solver_recovers_the_contours_from_the_pixels(length: int, images: int) -> None:
    """Contours have the right length, are smooth and separate, and the discs agree with the label.

    With hundreds of images, a fault in one of fifty stays unseen once in a thousand runs.
    """
    drawings_ = next(drawings(length, 0, "test")).take(np.arange(images))
    for number, (image, label) in enumerate(zip(render(drawings_), drawings_.labels.tolist(), strict=True)):
        scenes = list(pixels.scenes(image, length))
        assert {int(scene.is_connected) for scene in scenes} == {label}
        drawn_contours = [
            pixels.paint(
                ((row, column), pixels.dash_light(line(direction)), grey)
                for row, column, direction in contour
            )
            for contours, grey in ((drawings_.targets, pixels.LONG), (drawings_.distractors, pixels.SHORT))
            for contour in contours[number].tolist()
            if contour[0][2] >= 0
        ]
        assert 2 <= len(drawn_contours) <= 2 + DISTRACTOR_PADDLES // (length // 3)
        assert sorted(contour.image.tobytes() for contour in (*scenes[0].long, *scenes[0].short)) == sorted(
            contour.tobytes() for contour in drawn_contours
        )


def test_contours_start_at_the_published_positions() -> None:
    """The first contour starts in the middle 4 x 4 pixels, the second 7 pixels away."""
    tails = next(drawings(6, 0, "train")).tails.astype(int)
    assert set(tails[:, 0].flatten().tolist()) == {14, 15, 16, 17}
    away = np.hypot(*(tails[:, 1] - tails[:, 0]).T)
    assert np.abs(away - 7).max() < 0.75


def test_labels_are_balanced_and_independent_of_the_discs() -> None:
    """2,450 images have a share of one half within five standard errors of 0.0101; chance is below 10^-6."""
    drawings_ = next(drawings(6, 0, "train"))
    assert len(drawings_) == 2450
    for share in (
        drawings_.labels.mean(),
        drawings_.marked.mean(),
        (drawings_.labels == drawings_.marked).mean(),
    ):
        assert share == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(len(drawings_)))


def test_brightness_is_independent_of_the_label() -> None:
    """The total light of images with either label is equal within five standard errors."""
    drawings_ = next(drawings(6, 0, "train"))
    light = render(drawings_).reshape(len(drawings_), -1).sum(1)
    connected_light, separate_light = (light[drawings_.labels == label] for label in (0, 1))
    error = np.sqrt(connected_light.var() / len(connected_light) + separate_light.var() / len(separate_light))
    assert abs(connected_light.mean() - separate_light.mean()) < 5 * error
