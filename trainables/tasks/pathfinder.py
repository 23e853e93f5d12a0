"""Pathfinder of Long Range Arena: decide whether two marked points are the ends of one dashed contour.

Task and images: Linsley et al. 2018, "Learning long-range spatial dependencies with horizontal gated
recurrent units", and Kim et al. 2020, "Disentangling neural mechanisms for perceptual grouping". An image is
a sequence of 1,024 pixels. The parameters are those of Tay et al. 2021, "Long Range Arena": contours of 14
paddles of 2 pixels, a margin of 1, padding 1, seeds 7 apart, continuity 1, short contours of 14 // 3 paddles,
20 // 4 of them, contrasts 2 and 0.75 x 2, markers of radius 1.5. Contours of 6 and 9 paddles are its easier
forms.

Two long contours start near the middle and grow in turn. The head of a paddle is on a circle around the end
of the previous paddle, at a free place. Its probability is proportional to the squared cosine of the turn. A
pair of contours with a dead end is discarded. Then the short contours are added. The start of one long
contour is marked, and the end of the same contour (label 1) or of the other one.

Departures from the published generator, in addition to other random draws:

- The result depends neither on versions of image libraries nor on the last bits of trigonometry.
- Lines are reduced with a triangular window instead of a Lanczos window.
- Pixels are occupied or free, where the original weighs shades.
- A paddle keeps its margin also to the last paddle of other contours, which the original does not mark as
  occupied.
- Positions are rounded to the nearest pixel.
- All images share one scale of grey levels, where the original stretches each image separately.
- Single paddles are omitted, as in the published script that runs the generator.
- Splits are draws from separate streams; a common image of two splits is practically impossible.
"""

from typing import Annotated, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from trainables.data.draws import permutation
from trainables.data.files import content_digest
from trainables.data.progress import report
from trainables.field_effects import AffectsSplits
from trainables.generators.contours import drawings, render
from trainables.generators.images import (
    PIXELS,
    SIDE,
    decode,  # noqa: F401 required in every task
    image_shape,
    image_table,
    picture,  # noqa: F401 used by `haltsweep data`
)
from trainables.readers import pathfinder_files as files
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.task_protocol import SplitInfo, train_valid_test
from trainables.types import TaskShape

VERSION = 1
TRAINING_ONLY = frozenset({"train_examples"})
SIZES = {"train": 160_000, "valid": 20_000, "test": 20_000}
"""Published numbers of images: 80, 10 and 10% of 200,000."""


class Config(Settings):
    """Settings of the task. The defaults are the hard form of the published task."""

    name: Literal["pathfinder"] = "pathfinder"
    contour_length: Literal[6, 9, 14] = 14
    """Number of paddles (dashes) of each long contour."""
    side: Literal[32, 64, 128, 256] = 32
    """Width and height of the images in pixels; 128 is Path-X. Only images of side 32 can be generated;
    others are read from `folder`."""
    train_examples: int | None = Field(default=None, ge=1, le=1_000_000)
    """Number of training images. Default: 160,000, or 80% of the images in `folder`."""
    valid_examples: int | None = Field(default=None, ge=1, le=1_000_000)
    """Number of images of the valid split. Default: 20,000, or 10% of the images in `folder`."""
    test_examples: Annotated[int | None, AffectsSplits("test")] = Field(default=None, ge=1, le=1_000_000)
    """Number of images of the test split. Default: 20,000, or 10% of the images in `folder`."""
    folder: str | None = None
    """Folder of the published images (pathfinder32, or of another `side`), which holds curv_baseline,
    curv_contour_length_9 and curv_contour_length_14. These images are read instead of generated ones."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of the generated images. If images are read from `folder`, seed of their random division into
    splits."""

    @model_validator(mode="after")
    def _sizes_are_for_what_is_generated(self) -> Self:
        sizes_by_split = {name: getattr(self, f"{name}_examples") for name in SIZES}
        if self.folder is not None and any(size is not None for size in sizes_by_split.values()):
            sizes = ", ".join(
                f"{name}_examples={size}" for name, size in sizes_by_split.items() if size is not None
            )
            raise ValueError(
                f"numbers of examples are for generated images, got folder and {sizes}; drop one"
            )
        if self.folder is None and self.side != SIDE:
            raise ValueError(
                f"images of side {self.side} are read, not generated: set folder to the published images "
                f"(pathfinder{self.side}), or omit side"
            )
        return self


def settled(config: Config) -> Config:
    """Return settings with the published numbers of generated images filled in."""
    return config.model_copy(update={f"{split}_examples": _examples(config, split) for split in SIZES})


def shape(config: Config) -> TaskShape:
    """Return a shape with two classes and as many grey pixels as the images have."""
    return image_shape(2, config.side)


def label_names(config: Config) -> tuple[str, ...]:  # noqa: ARG001 the same for all settings
    """Return the names of the classes: `together` if the marked ends belong to one contour."""
    return ("apart", "together")


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """Return train, valid and test, all of the same distribution."""
    train, valid, test = (_examples(config, split) for split in SIZES)
    return train_valid_test(config.side**2, config.side**2, (train, valid, test))


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens` (uint8) and `label`. Raises `ValueError` for a bad folder."""
    if config.folder is not None:
        return _read_images(config, config.folder, split)
    num_wanted = _examples(config, split) or 0
    images = np.empty((num_wanted, PIXELS), dtype=np.uint8)
    labels = np.empty(num_wanted, dtype=np.int16)
    num_drawn = 0
    for drawn_images in drawings(config.contour_length, config.data_seed, split):
        new = drawn_images.take(np.arange(min(len(drawn_images), num_wanted - num_drawn)))
        images[num_drawn : num_drawn + len(new)] = render(new).reshape(-1, PIXELS)
        labels[num_drawn : num_drawn + len(new)] = new.labels
        num_drawn += len(new)
        report("images", num_drawn, num_wanted)
        if num_drawn == num_wanted:
            break
    return image_table(images, labels)


def require_files(config: Config) -> None:
    """Raise `ValueError` if the files are missing, without reading them."""
    if config.folder is not None:
        files.metadata(files.image_folder(config.folder, config.contour_length, config.side))


def source_digest(config: Config) -> str | None:
    """Return a digest of the images and their list; None for generated images. Raises `ValueError`."""
    if config.folder is None:
        return None
    image_folder = files.image_folder(config.folder, config.contour_length, config.side)
    lists = [f"metadata/{file.name}" for file in files.metadata(image_folder)]
    return content_digest(
        image_folder, [*lists, *(image.path for image in files.listed_images(image_folder))]
    )


def _examples(config: Config, split: str) -> int | None:
    examples: int | None = getattr(config, f"{split}_examples")
    return SIZES[split] if examples is None and config.folder is None else examples


def _read_images(config: Config, folder: str, split: str) -> pa.Table:
    """Return the images of a split: the first tenth (rounded up) is test, the next valid, the rest train."""
    image_folder = files.image_folder(folder, config.contour_length, config.side)
    images = files.existing_images(image_folder, files.listed_images(image_folder))
    tenth = -(-len(images) // 10)
    bounds = {"test": (0, tenth), "valid": (tenth, 2 * tenth), "train": (2 * tenth, len(images))}
    order = permutation(numpy_stream(config.data_seed, "pathfinder", "order"), len(images))
    selected = [images[number] for number in order[slice(*bounds[split])]]
    if not selected:
        raise ValueError(
            f"{image_folder} must list at least three images that are not empty, got {len(images)}"
        )
    return image_table(
        files.read(image_folder, selected, config.side), np.asarray([image.label for image in selected])
    )
