"""ListOps of Long Range Arena and by depth: laws, bounds, and trees that are only in one split."""

import numpy as np
import pytest

from trainables.data.split import content_hash
from trainables.generators.listops_splits import SplitLaw, generate
from trainables.generators.listops_trees import CLOSE, MIN, Law, Trees, grow
from trainables.streams import numpy_stream
from trainables.tasks import listops_depth, listops_lra

SMALL_SIZES = {"train_examples": 400, "test_examples": 60}


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


def test_nesting_equals_the_depth_of_each_tree() -> None:
    grown = grow(numpy_stream(0, "test"), Law(7, 4), 3000)
    assert grown.nesting().tolist() == [depth_of(row) for row in grown.rows()]


def test_drawing_by_length_equals_the_law_of_rejection() -> None:
    """Depths at 20 to 40 tokens, drawn in two ways, are within 5 standard errors; chance is below 10^-5."""
    law = Law(7, 5, 0.3)
    plain = grow(numpy_stream(1, "test"), law, 400_000)
    fits = (plain.lengths >= 20) & (plain.lengths <= 40) & (plain.nesting() >= 4)
    expected = np.bincount(plain.take(np.flatnonzero(fits)).nesting(), minlength=7)
    generated = generate(SplitLaw(law, (20, 40), 4000, (4, 6)), 0, ("test",), set())
    counts = np.bincount(generated.nesting(), minlength=7)
    share = (expected + counts) / (expected.sum() + counts.sum())
    error = np.sqrt(share * (1 - share) * (1 / expected.sum() + 1 / counts.sum()))
    assert (np.abs(expected / expected.sum() - counts / counts.sum()) <= 5 * error).all()


def test_operators_have_the_probability_of_the_law() -> None:
    """400,000 roots have a share of 0.3 within six standard errors."""
    grown = grow(numpy_stream(2, "test"), Law(6, 5, 0.3), 400_000)
    assert (grown.lengths > 1).mean() == pytest.approx(0.3, abs=6 * np.sqrt(0.21 / 400_000))


def test_default_sizes_equal_the_published_ones() -> None:
    for variant, many in {"dg": 100_000, "dg2": 1_000_000, "dg1": 1_000_000}.items():
        infos = {info.name: info for info in listops_depth.splits(listops_depth.Config(variant=variant))}
        assert infos.pop("train").examples == many
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


def test_generated_content_is_unchanged() -> None:
    """If this fails, the generator has changed: raise VERSION, so that old stored data is not reused."""
    hashes = {
        variant: content_hash(
            listops_depth.build(listops_depth.Config(variant=variant, **SMALL_SIZES), "train")
        )
        for variant in ("dg", "dg2", "dg1")
    }
    small = listops_lra.Config(train_examples=30, valid_examples=2, test_examples=2)
    hashes["lra"] = content_hash(listops_lra.build(small, "train"))
    assert (listops_depth.VERSION, listops_lra.VERSION, hashes) == (
        1,
        2,
        {
            "dg": "907ca0d50792ddc25a6fe0199ec7f91a",
            "dg2": "d317b1282589d354494d398c44ebe460",
            "dg1": "506c16f61302067506df56e37f28f2ae",
            "lra": "7b6185a370a321e492018e87f9c23810",
        },
    )
