"""ListOps of Long Range Arena and by depth: laws, bounds, and trees that are only in one split."""

import numpy as np
import pytest

from trainables.generators.listops_splits import SplitLaw, generate
from trainables.generators.listops_trees import CLOSE, MIN, Law, Trees, grow
from trainables.streams import numpy_stream
from trainables.tasks import listops_depth, listops_lra


def trees(**settings: object) -> dict[str, Trees]:
    config = listops_depth.Config(**settings)
    return {
        name: generate(law, config.data_seed, ("listops_depth", config.variant, name), set())
        for name, law in listops_depth._laws(config).items()
    }


@pytest.mark.parametrize(
    ("variant", "nesting", "lengths"),
    [
        ("dg", {"train": (0, 5), "valid": (7, 7), "deeper": (8, 9)}, {"valid": (20, 500)}),
        ("dg2", {"train": (1, 5), "valid": (6, 6), "deeper": (7, 8)}, {}),
        (
            "dg1",
            {"train": (1, 5), "valid": (6, 6), "deeper": (7, 8)},
            dict.fromkeys(("train", "valid", "deeper"), (50, 50)),
        ),
    ],
)
def test_depths_and_lengths_equal_the_published_ones(
    variant: str, nesting: dict[str, tuple[int, int]], lengths: dict[str, tuple[int, int]]
) -> None:
    trees_by_split = trees(variant=variant, train_examples=200, test_examples=20)
    for name, (shallowest, deepest) in nesting.items():
        depth = [depth_of(row) for row in trees_by_split[name].rows()]
        assert (shallowest <= min(depth), max(depth)) == (True, deepest), name
        shortest, longest = lengths.get(name, (20, 100))
        assert (
            shortest <= trees_by_split[name].lengths.min() <= trees_by_split[name].lengths.max() <= longest
        ), name
    for name, (low, high) in {"length-200-300": (200, 300), "lra": (500, 2000)}.items():
        assert low < trees_by_split[name].lengths.min() <= trees_by_split[name].lengths.max() < high


def depth_of(row: bytes) -> int:
    """Return the greatest number of open brackets, counted token by token."""
    depth = deepest = 0
    for token in row:
        depth += (MIN <= token < CLOSE) - (token == CLOSE)
        deepest = max(deepest, depth)
    return deepest


def test_drawing_by_length_equals_the_law_of_rejection() -> None:
    """Depths at 20 to 40 tokens, drawn in two ways, are within 5 standard errors; chance is below 10^-5."""
    law = Law(7, 5, 0.3)
    drawn_trees = grow(numpy_stream(1, "test"), law, 400_000)
    fits = (drawn_trees.lengths >= 20) & (drawn_trees.lengths <= 40) & (drawn_trees.nesting() >= 4)
    expected = np.bincount(drawn_trees.take(np.flatnonzero(fits)).nesting(), minlength=7)
    generated = generate(SplitLaw(law, (20, 40), 4000, (4, 6)), 0, ("test",), set())
    counts = np.bincount(generated.nesting(), minlength=7)
    share = (expected + counts) / (expected.sum() + counts.sum())
    error = np.sqrt(share * (1 - share) * (1 / expected.sum() + 1 / counts.sum()))
    assert (np.abs(expected / expected.sum() - counts / counts.sum()) <= 5 * error).all()


def test_default_sizes_equal_the_published_ones() -> None:
    for variant, num_train in {"dg": 100_000, "dg2": 1_000_000, "dg1": 1_000_000}.items():
        infos = {info.name: info for info in listops_depth.splits(listops_depth.Config(variant=variant))}
        assert infos.pop("train").examples == num_train
        assert {info.examples for info in infos.values()} == {2_000}
    sizes = [info.examples for info in listops_lra.splits(listops_lra.Config())]
    assert sizes == [96_000, 2_000, 2_000]


@pytest.mark.parametrize("variant", ["dg", "dg2", "dg1"])
def test_test_trees_differ_from_training_trees_by_bounds(variant: str) -> None:
    """Every test split differs from train in its bounds of length or of depth."""
    laws = listops_depth._laws(listops_depth.Config(variant=variant))
    train = laws.pop("train")
    for name, law in laws.items():
        longer = law.lengths[0] > train.lengths[1]
        deeper = law.nesting is not None and law.nesting[0] > train.law.depth_max - 1
        assert longer or deeper, name
