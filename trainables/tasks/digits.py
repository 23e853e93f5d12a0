"""Handwritten digits, pixel by pixel: real data without download, for demonstrations.

Source: the 1,797 images of 8 x 8 pixels with 17 grey levels that scikit-learn includes, the test part of
Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits" (UCI). An image is the sequence of its
rows, from the top. No two images are identical.
"""

from collections.abc import Sequence
from functools import cache
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from trainables.data.draws import permutation
from trainables.generators import images
from trainables.generators.images import decode, image_table  # noqa: F401 `decode` is required in every task
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.task_protocol import SplitInfo, train_valid_test
from trainables.types import TaskShape

VERSION = 1
SIDE = 8
LEVELS = 17
"""Grey levels 0 .. 16, which are also their token ids."""
PAD = LEVELS
CLASSES = 10
IMAGES = 1797
HELD_OUT_MAX = 600


class Config(Settings):
    """Settings of the division of the images into splits."""

    name: Literal["digits"] = "digits"
    valid_examples: int = Field(default=180, ge=1, le=HELD_OUT_MAX)
    """Images of the valid split."""
    test_examples: int = Field(default=360, ge=1, le=HELD_OUT_MAX)
    """Images of the test split. The train split has the images that no other split uses."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of the random division into splits, independent of training seeds: trials with different training
    seeds share one data set."""


def shape(config: Config) -> TaskShape:  # noqa: ARG001 the same for all settings
    """Return a shape with ten classes over 17 grey levels."""
    return TaskShape(
        head="classify",
        vocabulary_size=LEVELS + 1,
        num_classes=CLASSES,
        pad_id=PAD,
        length_max=SIDE * SIDE,
    )


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """Return train, valid and test: parts of one random order."""
    num_train = IMAGES - config.valid_examples - config.test_examples
    return train_valid_test(SIDE**2, SIDE**2, (num_train, config.valid_examples, config.test_examples))


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens` (uint8) and `label`."""
    sizes = {info.name: info.examples or 0 for info in splits(config)}
    stop = dict(zip(sizes, np.cumsum([*sizes.values()]).tolist(), strict=True))[split]
    pixels, labels = _images()
    order = permutation(numpy_stream(config.data_seed, "digits", "order"), IMAGES)
    indices = order[stop - sizes[split] : stop]
    return image_table(pixels[indices], labels[indices])


def picture(tokens: Sequence[int]) -> str:
    """Return the image as text, see `images.picture`."""
    return images.picture(tokens, LEVELS)


@cache
def _images() -> tuple[np.ndarray, np.ndarray]:
    """Return pixels (uint8, one row per image) and labels (int16)."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    assert pixels.shape == (IMAGES, SIDE * SIDE), f"scikit-learn must bring 1,797 images, got {pixels.shape}"
    return pixels.astype(np.uint8), labels.astype(np.int16)
