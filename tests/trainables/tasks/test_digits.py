"""Handwritten digits: sizes, classes and the division into splits."""

import numpy as np

from trainables.data.split import Split, content_hash
from trainables.tasks import digits


def built(name: str, **settings: int) -> Split:
    table = digits.build(digits.Config(**settings), name)
    return Split(table, digits.PAD, content_hash(table))


def test_every_image_is_in_one_split() -> None:
    parts = {name: built(name) for name in ("train", "valid", "test")}
    assert {name: len(part) for name, part in parts.items()} == {"train": 1257, "valid": 180, "test": 360}
    rows = [tuple(row) for part in parts.values() for row in part.batch(np.arange(len(part))).tokens.tolist()]
    assert len(set(rows)) == len(rows) == digits.IMAGES


def test_classes_are_those_of_the_collection() -> None:
    """178, 182, 177, ... images of 0, 1, 2, ..., as the UCI description of the test part counts them."""
    counts = [
        sum(built(name).label_histogram[digit] for name in ("train", "valid", "test")) for digit in range(10)
    ]
    assert counts == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_the_first_image_of_the_collection_is_a_nought() -> None:
    pixels, labels = digits._images()
    assert labels[0] == 0
    assert pixels[0].reshape(8, 8)[3].tolist() == [0, 4, 12, 0, 0, 8, 8, 0]
    assert pixels.max() == digits.LEVELS - 1


def test_another_seed_divides_otherwise() -> None:
    assert built("test").content_hash != built("test", data_seed=1).content_hash


def test_content_is_pinned() -> None:
    """If this fails, the division changed: raise VERSION, so that no old copy is taken for the new data."""
    assert (digits.VERSION, built("test").content_hash) == (1, "9ba08f57302c91f19ee8209de7178ed1")
