"""Handwritten digits: classes and first image."""

from trainables.data.split import Split, content_hash
from trainables.tasks import digits


def build_split(name: str, **settings: int) -> Split:
    table = digits.build(digits.Config(**settings), name)
    return Split(table, digits.PAD, content_hash(table))


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
