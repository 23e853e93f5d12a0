"""Represent images as sequences of grey levels, row by row: shape, table and text for all image tasks."""

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from trainables.data.ragged import list_column
from trainables.types import TaskShape

SIDE = 32
PIXELS = SIDE * SIDE
LEVELS = 256
SHADES = " .:-=+*#%@"
PAD = LEVELS
"""Id of padding; grey levels are their own ids. In the released code of the papers padding has the id of
black.
"""


def image_shape(num_classes: int, side: int = SIDE) -> TaskShape:
    """Return a shape for square pictures with 256 grey levels."""
    return TaskShape(
        head="classify", vocabulary_size=LEVELS + 1, num_classes=num_classes, pad_id=PAD, length_max=side**2
    )


def image_table(images: np.ndarray, labels: np.ndarray) -> pa.Table:
    """Return columns `tokens` (from uint8, N x pixels or another shape of that size) and `label`."""
    offsets = np.arange(len(labels) + 1, dtype=np.int64) * (images.size // len(labels))
    tokens = list_column(offsets, images.reshape(-1))
    return pa.table({"tokens": tokens, "label": pa.array(labels.astype(np.int16))})


def picture(tokens: Sequence[int], levels: int = LEVELS) -> str:
    """Return the image as text: one line per row, two characters per pixel, darker for brighter pixels."""
    inks, side = [SHADES[token * len(SHADES) // levels] * 2 for token in tokens], math.isqrt(len(tokens))
    return "\n".join("".join(inks[start : start + side]) for start in range(0, len(inks), side))


def decode(tokens: Sequence[int]) -> str:
    """Return the grey levels, row by row."""
    return " ".join(map(str, tokens))
