"""Image of Long Range Arena: classify a small picture from its grey pixels, read one by one.

Tay et al. 2021, "Long Range Arena", on CIFAR-10 (Krizhevsky 2009): 32 x 32 pixels in rows, from the top. The
task reads the files that `trainables.readers.cifar` lists. The last tenth of the training pictures, in the
order of the files, is the validation split: 45,000, 5,000 and 10,000 pictures.

Grey is 0.2989 red + 0.5870 green + 0.1140 blue, computed as in TensorFlow: as a share of 255, times 255.5,
truncated. The computation here uses integers.

Difference from the published runs: the padding token has a separate id. In the published runs, padding and
black pixels share one id, whose embedding is never trained. No picture is padded, so there is no other
difference.
"""

from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from trainables.data.files import content_digest
from trainables.data.progress import report
from trainables.generators.images import (
    PIXELS,
    decode,  # noqa: F401 required in every task
    image_shape,
    image_table,
    picture,  # noqa: F401 used by `haltsweep data`
)
from trainables.readers import cifar
from trainables.settings import Settings
from trainables.task_protocol import SplitInfo, train_valid_test
from trainables.types import TaskShape

VERSION = 1
WEIGHTS = (2989, 5870, 1140)
"""Weights of red, green and blue, in ten-thousandths."""
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
"""Names of the classes, in the order of the labels."""


class Config(Settings):
    """The published task."""

    name: Literal["lra_image"] = "lra_image"
    folder: str | None = None
    """Folder of CIFAR-10, as pickled batches or in the binary version. Needed for training; a spec can be
    planned without the folder."""


def shape(config: Config) -> TaskShape:  # noqa: ARG001 the same for all settings
    """Return a shape with ten classes and 1,024 grey pixels."""
    return image_shape(len(CLASSES))


def label_names(config: Config) -> tuple[str, ...]:  # noqa: ARG001 the same for all settings
    """Return the names of the classes."""
    return CLASSES


def splits(config: Config) -> tuple[SplitInfo, ...]:  # noqa: ARG001 the same for all settings
    """Return train, valid and test."""
    return train_valid_test(PIXELS, PIXELS)


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens` (uint8) and `label`. Raises `ValueError` for a bad file."""
    folder, names = _names(config)
    file_names = names["test" if split == "test" else "train"]
    images, labels = [], []
    for number, name in enumerate(file_names):
        report("files", number, len(file_names))
        colours, answers = cifar.read_images(folder / name)
        images.append(grey(colours))
        labels.append(answers)
    pixels, answers = np.concatenate(images), np.concatenate(labels)
    if split == "test":
        return image_table(pixels, answers)
    num_train = len(pixels) * 9 // 10
    part = slice(num_train) if split == "train" else slice(num_train, None)
    return image_table(pixels[part], answers[part])


def require_files(config: Config) -> None:
    """Raise `ValueError` if the files are missing, without reading them."""
    _names(config)


def source_digest(config: Config) -> str:
    """Return a digest of the contents of the files. Raises `ValueError` for missing files."""
    folder, names = _names(config)
    return content_digest(folder, [name for part in names.values() for name in part])


def grey(colours: np.ndarray) -> np.ndarray:
    """Return grey levels (uint8, N x PIXELS) from red, green and blue levels (N x 3 PIXELS)."""
    planes = colours.reshape(len(colours), len(WEIGHTS), -1)
    total = sum(planes[:, colour].astype(np.int64) * weight for colour, weight in enumerate(WEIGHTS))
    return np.asarray(total * 511 // (2 * 255 * 10_000)).astype(np.uint8)


def _names(config: Config) -> tuple[Path, dict[str, tuple[str, ...]]]:
    names = cifar.names(config.folder)
    return Path(str(config.folder)), names
