"""Logical inference has the statistics of the published files, and can read these files instead."""

import re
from pathlib import Path

import numpy as np
import pytest

from trainables.data.split import Split, content_hash
from trainables.data.store import open_split, split_path
from trainables.generators.formula_pairs import RELATIONS, Pairs, concatenate, generate_pairs, has_pattern
from trainables.tasks import logical_inference as task

PUBLISHED_TRAIN = [30, 2319, 12451, 23252, 30373, 34152, 32952, 26671, 18962, 12634, 8181, 4894, 4831]
PUBLISHED_TEST = [6, 410, 2198, 4104, 5361, 6027, 5816, 4707, 3347, 2230, 1444, 864, 853]


@pytest.fixture(scope="module")
def all_buckets() -> tuple[tuple[Pairs, ...], tuple[Pairs, ...]]:
    """All 500,000 pairs, which take a second."""
    return generate_pairs(500_000, 0)


@pytest.fixture(scope="module")
def pool(all_buckets: tuple[tuple[Pairs, ...], tuple[Pairs, ...]]) -> Pairs:
    return concatenate(list(all_buckets[0][:7]))


def test_buckets_have_the_published_sizes(all_buckets: tuple[tuple[Pairs, ...], tuple[Pairs, ...]]) -> None:
    """Both counts are nearly Poisson; they differ by at most 5 standard deviations; chance is 10^-5."""
    for part, published in zip(all_buckets, (PUBLISHED_TRAIN, PUBLISHED_TEST), strict=True):
        sizes = np.asarray([len(bucket) for bucket in part])
        assert (np.abs(sizes - published) <= 5 * np.sqrt(2 * np.asarray(published))).all(), sizes


def test_classes_have_the_published_priors(pool: Pairs) -> None:
    """Shares are within 0.8% points, five standard errors of the most frequent class on both sides."""
    shares = np.bincount(pool.labels, minlength=7) / len(pool)
    shares_by_relation = dict(zip(RELATIONS, shares.tolist(), strict=True))
    published = {"#": 0.542, ">": 0.107, "<": 0.106, "v": 0.102, "|": 0.102, "=": 0.021, "^": 0.019}
    assert shares_by_relation == pytest.approx(published, abs=0.008)


@pytest.mark.parametrize(
    ("pattern", "text", "published"),
    [
        ("A", r"\( and \( not a \) \)", 6_560),
        ("B", r"\( and \( not ", 47_581),
        ("C", r"\( (and|or) \( not ", 83_633),
    ],
)
def test_patterns_have_the_published_frequency(pool: Pairs, pattern: str, text: str, published: int) -> None:
    held_out = has_pattern(pool, pattern)
    assert held_out.sum() == pytest.approx(published, abs=7 * np.sqrt(published))
    for row, is_held_out in zip(list(pool.rows())[-2000:], held_out[-2000:], strict=True):
        assert bool(re.search(text, task.decode(row))) == is_held_out


def build(split: str, **settings: object) -> Split:
    table = task.build(task.Config(**settings), split)
    return Split(table, task.PAD, content_hash(table))


SMALL = {"pairs": 12_000, "test_pairs": 12_000}


def test_validation_split_is_every_tenth_pair() -> None:
    """Sizes equal those of the published files: a tenth, rounded down; the tests have all operators."""
    train, valid = build("train", **SMALL), build("valid", **SMALL)
    pool = concatenate(list(generate_pairs(12_000, 0)[0][:7]))
    assert len(valid) == len(pool) // 10
    assert len(train) + len(valid) == len(pool)
    rows = list(pool.rows())
    assert task.decode(valid.batch(np.asarray([0])).tokens[0].tolist()).split(" <pad>")[0] == task.decode(
        rows[9]
    )
    assert train.lengths.max() <= task.shape(task.Config()).length_max == 75


def test_held_out_pattern_occurs_in_no_other_split_of_the_pool() -> None:
    parts = [task.build(task.Config(held_out="B", **SMALL), name) for name in ("train", "valid", "held-out")]
    assert sum(map(len, parts)) == len(build("train", **SMALL)) + len(build("valid", **SMALL))
    for part, is_held_out in zip(parts, (False, False, True), strict=True):
        texts = [task.decode(row) for row in part["tokens"].to_pylist()]
        assert all(("( and ( not " in text) == is_held_out for text in texts)


@pytest.fixture
def published_files(tmp_path: Path) -> Path:
    """A folder in the published format, each file with twenty generated pairs."""
    folder = tmp_path / "original files"
    folder.mkdir()
    for part, buckets in zip(("train", "test"), generate_pairs(12_000, 0), strict=True):
        for number, bucket in enumerate(buckets):
            lines = [
                f"{RELATIONS[label]}\t" + task.decode(row).replace(" <sep> ", "\t")
                for row, label in list(zip(bucket.rows(), bucket.labels.tolist(), strict=True))[:20]
            ]
            (folder / f"{part}{number}").write_text("\n".join(lines) + "\n")
    return folder


def test_published_files_are_read(published_files: Path) -> None:
    test, train = (build(split, folder=str(published_files)) for split in ("operators-3", "train"))
    lines = (published_files / "test3").read_text().splitlines()
    batch = test.batch(np.arange(len(test)))
    assert len(lines) == len(test) == 20
    for line, row, mask, label in zip(lines, batch.tokens, batch.mask, batch.labels.tolist(), strict=True):
        assert line == f"{RELATIONS[label]}\t" + task.decode(row[mask].tolist()).replace(" <sep> ", "\t")
    assert len(train) == 126, "train has seven files of twenty pairs, without every tenth pair"


def test_missing_files_error_names_the_files(published_files: Path, tmp_path: Path) -> None:
    (published_files / "train4").unlink()
    (published_files / "train12").unlink()
    config = task.Config(folder=str(published_files))
    message = "train4, train12"
    with pytest.raises(ValueError, match=message):
        task.build(config, "train")
    with pytest.raises(ValueError, match=message):
        open_split(config, "operators-3", tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("line", ["=\ta", "?\ta\tb", "=\ta\t( b ( xor c ) )", ""])
def test_malformed_line_error_has_file_and_line(published_files: Path, line: str, tmp_path: Path) -> None:
    file = published_files / "train2"
    lines = file.read_text().splitlines()
    lines[4] = line
    file.write_text("\n".join(lines) + "\n")
    config = task.Config(folder=str(published_files))
    with pytest.raises(ValueError, match="train2, line 5") as caught:
        open_split(config, "train", tmp_path / "data")
    assert repr(line) in str(caught.value)
    assert not split_path(config, "train", tmp_path / "data").exists()
