"""ListOps-O has the statistics of the published data, and impossible settings are refused."""

import numpy as np
import pytest

from trainables import task_catalog
from trainables.data.split import Split, content_hash
from trainables.generators.listops_splits import PAD
from trainables.generators.listops_trees import CLOSE, MIN, Trees
from trainables.tasks import listops

OPERATOR_IDS = range(MIN, CLOSE)


@pytest.fixture(scope="module")
def corpus() -> Trees:
    """All 100,000 trees, which take half a second."""
    return listops._corpus(100_000, listops._corpus_law(listops.Config()), 0)


@pytest.fixture(scope="module")
def nesting(corpus: Trees) -> np.ndarray:
    """Number of nested operators of each tree."""
    steps = np.isin(corpus.tokens, OPERATOR_IDS).astype(np.int64) - (corpus.tokens == CLOSE)
    # Every tree closes all of its operators, so one running sum serves all trees.
    return np.maximum.reduceat(np.cumsum(steps), corpus.offsets[:-1])


def test_corpus_has_the_published_statistics(corpus: Trees, nesting: np.ndarray) -> None:
    """20.7% have depth 1, lengths have median 16, mean 42.8 and 89.2% up to 100; labels have 9% to 11% each.

    Standard deviations over seeds are 0.1% points, at most 1, 0.3 and 0.1% points, also of the published
    figures. The bounds are at least six of them wide, so the test fails by chance with less than 10^-6.
    """
    assert (nesting == 1).mean() == pytest.approx(0.207, abs=0.01)
    assert abs(np.median(corpus.lengths) - 16) <= 1
    assert corpus.lengths.mean() == pytest.approx(42.8, abs=2)
    assert (corpus.lengths <= 100).mean() == pytest.approx(0.892, abs=0.008)
    shares = np.bincount(corpus.labels, minlength=10) / len(corpus)
    assert 0.085 < shares.min() < shares.max() < 0.12


def test_nesting_has_the_published_distribution(nesting: np.ndarray) -> None:
    """Counts of the 10,000 published test lines, within 5 standard errors; fails by chance with 10^-5."""
    counts = "1 2093 2339 1429 893 611 519 404 287 230 185 158 113 104 88 81 48 61 32 324"
    published = np.asarray(counts.split(), dtype=float)
    shares = np.bincount(nesting, minlength=20) / len(nesting)
    assert len(shares) == 20
    error = np.sqrt(shares * (1 - shares) / 10_000) + 1e-4
    assert (np.abs(published / 10_000 - shares) < 5 * error).all()


def test_short_trees_are_spread_evenly_over_splits(corpus: Trees) -> None:
    """Trees are drawn with frequent ones first; the splits must not inherit this order.

    The means of 10,000 lengths differ by less than six standard errors.
    """
    first, last = corpus.lengths[:10_000], corpus.lengths[-10_000:]
    assert abs(first.mean() - last.mean()) < 6 * np.sqrt((first.var() + last.var()) / 10_000)


def split_of(name: str, **settings: object) -> Split:
    config = task_catalog.task_config({"name": "listops"} | settings)
    table = listops.build(config, name)
    return Split(table, PAD, content_hash(table))


SMALL = {"trees": 2000, "near_iid_examples": 200, "valid_examples": 100, "test_examples": 10}


def test_test_splits_exclude_trees_of_the_corpus() -> None:
    """The training trees have the law and lengths of the tests, so overlaps would be likely."""
    corpus = {"trees": 60_000, "depth_max": 20, "arguments_max": 5, "length_ranges": [[10, 12]]}
    train = split_of("train", **corpus)
    tested = split_of("length-10-12", **corpus)
    examples = [
        {tuple(row) for row in split.batch(np.flatnonzero(split.lengths == 11)).tokens[:, :11].tolist()}
        for split in (train, tested)
    ]
    assert len(examples[1]) == 2000
    assert not examples[0] & examples[1]


def test_default_splits_partition_one_corpus() -> None:
    """Near-iid, valid and train of the default settings are 100,000 different trees of one draw."""
    config = listops.Config(test_examples=1)
    near_iid, valid = listops._held_out(config)
    parts = [set(trees.rows()) for trees in (near_iid, valid, listops._train_trees(config))]
    assert [len(part) for part in parts] == [10_000, 1_000, 89_000]
    all_trees = set().union(*parts)
    assert all_trees == set(listops._corpus(100_000, listops._corpus_law(config), 0).rows())


def test_only_train_is_filtered_by_length() -> None:
    train, valid = split_of("train", **SMALL), split_of("valid", **SMALL)
    assert train.lengths.max() <= 100 < valid.lengths.max()
    assert 1400 < len(train) < 1700
    assert split_of("valid", **SMALL, train_length_max=10_000).content_hash == valid.content_hash


def test_more_training_trees_do_not_change_the_tests() -> None:
    """Arms that differ in the training set are compared on the same examples."""
    settings = SMALL | {"length_ranges": [[10, 20]]}
    for name in ("valid", "near-iid", "length-10-20"):
        few_trees, many_trees = (split_of(name, **settings | {"trees": trees}) for trees in (1500, 4000))
        assert few_trees.content_hash == many_trees.content_hash
