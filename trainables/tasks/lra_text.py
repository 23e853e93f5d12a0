"""Text of Long Range Arena: classify a film review, read byte by byte, as positive or negative.

Tay et al. 2021, "Long Range Arena", on the reviews of Maas et al. 2011, "Learning Word Vectors for Sentiment
Analysis" (IMDB). The task reads files:

    <folder>/train/pos/*.txt   one review per file; folder is the published aclImdb
    <folder>/train/neg/*.txt
    <folder>/test/pos/*.txt
    <folder>/test/neg/*.txt

Difference from the published task: the validation split is a part of the training reviews. Long Range Arena
and the runs of Ray Chowdhury and Caragea validate, and thus select weights, on the test reviews. The setting
`validate_on: test` does the same.
"""

import os
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from trainables.data.draws import permutation
from trainables.data.files import content_digest, source_folder, unreadable_error
from trainables.data.progress import report_each
from trainables.field_effects import AffectsForm
from trainables.readers.byte_text import (
    IDS,
    PAD,
    decode,  # noqa: F401 required in every task
    ids,
)
from trainables.readers.parallel_text import Rows
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.task_protocol import SplitInfo
from trainables.types import TaskShape

VERSION = 1
OPINIONS = ("neg", "pos")
"""Names of the labels, by label."""
VALID_EXAMPLES = 2_500


class Config(Settings):
    """Settings of the task. The defaults are the published task, except for the validation split."""

    name: Literal["lra_text"] = "lra_text"
    folder: str | None = None
    """The folder aclImdb, which holds train and test. Needed for training; a spec can be planned without
    it."""
    length_max: Annotated[int, AffectsForm()] = Field(default=4096, ge=1, le=65536)
    """Maximum number of bytes read from a review. Ray Chowdhury and Caragea read 4096, Tay et al. 1000, and
    4000 in their Temporal Latent Bottleneck."""
    validate_on: Literal["train", "test"] = "train"
    """`train`: validate on a part of the training reviews, which is then not trained on. `test`: validate on
    the test split, as published."""
    valid_examples: int | None = Field(default=None, ge=1, le=12_500)
    """Number of training reviews in the validation split. Default: 2,500."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of the random choice of training reviews that form the validation split."""

    @model_validator(mode="after")
    def _some_are_held_out(self) -> Self:
        if self.validate_on == "test" and self.valid_examples is not None:
            raise ValueError(
                "valid_examples is the number of training reviews used for validation, got "
                f"valid_examples={self.valid_examples} and validate_on='test'; drop one"
            )
        return self


def settled(config: Config) -> Config:
    """Return settings in which fields that the validation does not use have their defaults."""
    if config.validate_on == "test":
        return config.model_copy(update={"data_seed": 0})
    return config.model_copy(update={"valid_examples": _held_out(config)})


def _held_out(config: Config) -> int:
    return config.valid_examples or VALID_EXAMPLES


def shape(config: Config) -> TaskShape:
    """Return a shape with two classes of byte strings."""
    return TaskShape(
        head="classify",
        vocabulary_size=IDS,
        num_classes=len(OPINIONS),
        pad_id=PAD,
        length_max=config.length_max,
    )


def label_names(config: Config) -> tuple[str, ...]:  # noqa: ARG001 the same for all settings
    """Return the names of the folders of reviews."""
    return OPINIONS


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """Return train, valid and test."""
    lengths = 1, config.length_max
    held_out = "test" if config.validate_on == "test" else ""
    return (
        SplitInfo("train", "train", *lengths, None),
        SplitInfo("valid", "valid", *lengths, None, holds=held_out),
        SplitInfo("test", "test", *lengths, None),
    )


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens` (uint16) and `label`. Raises `ValueError` for a bad folder."""
    folder = _folder(config)
    reviews = _split_reviews(config, folder, split)
    rows = Rows(IDS)
    for review in report_each(reviews, "reviews", len(reviews)):
        rows.append(ids(_read_review(folder / review, config.length_max)))
    labels = [OPINIONS.index(review.split("/")[1]) for review in reviews]
    return pa.table({"tokens": rows.column(), "label": pa.array(np.asarray(labels, dtype=np.int16))})


def require_files(config: Config) -> None:
    """Raise `ValueError` if the files are missing, without reading them."""
    _folder(config)


def source_digest(config: Config) -> str:
    """Return a digest of the contents of all reviews. Raises `ValueError` for missing files."""
    folder = _folder(config)
    return content_digest(folder, [*_reviews(folder, "train"), *_reviews(folder, "test")])


def _folder(config: Config) -> Path:
    """Return the folder of reviews. Raises `ValueError` if it is incomplete."""
    names = [f"{part}/{opinion}" for part in ("train", "test") for opinion in OPINIONS]
    content = f"{', '.join(names)} with a review in each .txt file (the published aclImdb)"
    return source_folder(config.folder, names, content)


def _split_reviews(config: Config, folder: Path, split: str) -> list[str]:
    """Return the reviews of a split."""
    if split == "test" or (split == "valid" and config.validate_on == "test"):
        return _reviews(folder, "test")
    reviews = _reviews(folder, "train")
    if config.validate_on == "test":
        return reviews
    held_out = _held_out(config)
    if held_out >= len(reviews):
        raise ValueError(
            f"valid_examples must leave reviews to train on, got {held_out} and {len(reviews)} reviews in "
            f"{folder / 'train'}; lower it"
        )
    order = permutation(numpy_stream(config.data_seed, "lra_text", "valid"), len(reviews))
    part = order[:held_out] if split == "valid" else order[held_out:]
    return [reviews[number] for number in np.sort(part).tolist()]


def _reviews(folder: Path, part: str) -> list[str]:
    """Return the paths below `folder` of all reviews of a part, sorted by opinion, then by name."""
    reviews: list[str] = []
    for opinion in OPINIONS:
        folder_name = f"{part}/{opinion}"
        try:
            with os.scandir(folder / folder_name) as entries:
                names = sorted(entry.name for entry in entries if entry.name.endswith(".txt"))
        except OSError as error:
            raise unreadable_error(folder / folder_name, error) from error
        if not names:
            raise ValueError(
                f"{folder / folder_name} must hold a review in each .txt file, got none; put them there"
            )
        reviews += [f"{folder_name}/{name}" for name in names]
    return reviews


def _read_review(file: Path, max_bytes: int) -> bytes:
    """Return the first `max_bytes` bytes of a review."""
    try:
        with file.open("rb") as review_file:
            text = review_file.read(max_bytes)
    except OSError as error:
        raise unreadable_error(file, error) from error
    if not text:
        raise ValueError(f"{file}: expected a review, got an empty file; put the review there")
    return text
