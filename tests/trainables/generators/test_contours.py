"""Paddles and contours of generated pathfinder images have the published shapes and frequencies."""

import numpy as np
import pytest

from trainables.generators import paddles as paddle_shapes
from trainables.generators.contours import drawings, paddles, render


def test_ring_has_sixteen_directions_with_published_probabilities() -> None:
    """Sixteen places are three pixels away; straight on is likeliest, sideways and back impossible."""
    assert len(paddle_shapes.RING) == 16
    assert np.abs(np.hypot(*paddle_shapes.RING.T) - 3).max() < 0.5
    weights = paddles().weights[paddle_shapes.DEGREES :]
    assert weights.argmax(1).tolist() == list(range(16))
    angle = np.arctan2(*paddle_shapes.RING.T)
    turn = np.cos(angle[:, None] - angle)
    np.testing.assert_allclose(weights / 2**20, np.where(turn > 0, turn, 0) ** 2, atol=1e-6)


def test_contours_start_at_the_published_positions() -> None:
    """The first contour starts in the middle 4 x 4 pixels, the second 7 pixels away."""
    tails = next(drawings(6, 0, "train")).tails.astype(int)
    assert set(tails[:, 0].flatten().tolist()) == {14, 15, 16, 17}
    distances = np.hypot(*(tails[:, 1] - tails[:, 0]).T)
    assert np.abs(distances - 7).max() < 0.75


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
