"""Handwritten digits: sizes, classes and splits."""

import numpy as np

from trainables.data.split import Split, content_hash
from trainables.tasks import digits


def build_split(name: str, **settings: int) -> Split:
    table = digits.build(digits.Config(**settings), name)
    return Split(table, digits.PAD, content_hash(table))


def test_every_image_is_in_one_split() -> None:
    parts = {name: build_split(name) for name in ("train", "valid", "test")}
    assert {name: len(part) for name, part in parts.items()} == {"train": 1257, "valid": 180, "test": 360}
    rows = [tuple(row) for part in parts.values() for row in part.batch(np.arange(len(part))).tokens.tolist()]
    assert len(set(rows)) == len(rows) == digits.IMAGES


def test_class_counts_equal_those_of_the_collection() -> None:
    """The UCI description of the test part counts 178, 182, 177, ... images of 0, 1, 2, ..."""
    counts = [
        sum(build_split(name).label_histogram[digit] for name in ("train", "valid", "test"))
        for digit in range(10)
    ]
    assert counts == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_first_image_of_the_collection_is_a_zero() -> None:
    pixels, labels = digits._images()
    assert labels[0] == 0
    assert pixels[0].reshape(8, 8)[3].tolist() == [0, 4, 12, 0, 0, 8, 8, 0]
    assert pixels.max() == digits.LEVELS - 1


def test_another_seed_gives_other_splits() -> None:
    assert build_split("test").content_hash != build_split("test", data_seed=1).content_hash


def test_splits_are_unchanged() -> None:
    """If this fails, the splits have changed: raise VERSION, so that stored data is not reused."""
    assert (digits.VERSION, build_split("test").content_hash) == (1, "9ba08f57302c91f19ee8209de7178ed1")
