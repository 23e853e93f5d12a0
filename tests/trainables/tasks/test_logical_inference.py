"""Logical inference has the statistics of the published files, and can read these files instead."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.oracles.solvers import logical_inference_solver as oracle
from trainables import task_catalog
from trainables.data.split import Split, content_hash
from trainables.data.store import open_split, split_path
from trainables.generators.formula_pairs import (
    RELATIONS,
    SEPARATOR,
    Pairs,
    concatenate,
    generate_pairs,
    has_pattern,
    relate,
)
from trainables.protocol import Job
from trainables.readers.formula_pair_files import _read_file
from trainables.tasks import logical_inference as task
from trainables.training import Training

PUBLISHED_TRAIN = [30, 2319, 12451, 23252, 30373, 34152, 32952, 26671, 18962, 12634, 8181, 4894, 4831]
PUBLISHED_TEST = [6, 410, 2198, 4104, 5361, 6027, 5816, 4707, 3347, 2230, 1444, 864, 853]


@pytest.fixture(scope="module")
def all_buckets() -> tuple[tuple[Pairs, ...], tuple[Pairs, ...]]:
    """All 500,000 pairs, which take a second."""
    return generate_pairs(500_000, 0)


@pytest.fixture(scope="module")
def pool(all_buckets: tuple[tuple[Pairs, ...], tuple[Pairs, ...]]) -> Pairs:
    return concatenate(list(all_buckets[0][:7]))


def test_buckets_have_the_published_sizes(
    all_buckets: tuple[tuple[Pairs, ...], tuple[Pairs, ...]],
) -> None:
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


def test_floors_equal_the_published_ones(all_buckets: tuple[tuple[Pairs, ...], tuple[Pairs, ...]]) -> None:
    """Always `#` on 7 to 12 operators; 850 to 4,700 test pairs, five standard errors of two draws."""
    published = [51.41, 51.60, 51.39, 51.32, 50.58, 48.18]
    for bucket, floor in zip(all_buckets[1][7:], published, strict=True):
        rate = np.bincount(bucket.labels).max() / len(bucket)
        assert rate == pytest.approx(floor / 100, abs=5 * np.sqrt(0.5 / len(bucket)))
        assert np.bincount(bucket.labels).argmax() == RELATIONS.index("#")


def test_longer_sentences_have_the_published_lengths(
    all_buckets: tuple[tuple[Pairs, ...], tuple[Pairs, ...]],
) -> None:
    """Published mean lengths are rounded to tokens; standard errors are below 0.2 tokens."""
    for bucket, mean in zip(all_buckets[1][7:], [33, 38, 42, 47, 51, 58], strict=True):
        first = np.flatnonzero(bucket.tokens == SEPARATOR) - bucket.offsets[:-1]
        longer = np.maximum(first, bucket.lengths - 1 - first)
        assert longer.mean() == pytest.approx(mean, abs=1.5)


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


def test_relations_equal_those_of_truth_tables() -> None:
    """The pairs are all contingent formulas over four worlds; the fourth stands for all further worlds."""
    tables = [sum(1 << world for world in range(64) if code >> min(world, 3) & 1) for code in range(1, 15)]
    grids = np.meshgrid(*[np.asarray(tables, dtype=np.uint64)] * 2)
    first, second = (grid.ravel() for grid in grids)
    labels = relate(first, second)
    assert set(labels.tolist()) == set(range(len(RELATIONS)))
    for first_table, second_table, label in zip(
        first.tolist(), second.tolist(), labels.tolist(), strict=True
    ):
        holds = [
            {world for world in range(64) if int(table) >> world & 1} for table in (first_table, second_table)
        ]
        assert label == oracle.LABELS.index(oracle.relation(*holds, set(range(64))))


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
    for pattern in ("A", "B", "C"):
        parts = [build(split, held_out=pattern, **SMALL) for split in ("train", "valid", "held-out")]
        assert sum(map(len, parts)) == len(build("train", **SMALL)) + len(build("valid", **SMALL))
        for part, share in zip(parts, (0, 0, 1), strict=True):
            batch = part.batch(np.arange(len(part)))
            rows = [row[mask].tolist() for row, mask in zip(batch.tokens, batch.mask, strict=True)]
            offsets = np.cumsum([0, *map(len, rows)])
            pairs = Pairs(np.concatenate(rows).astype(np.uint8), offsets, batch.labels.numpy())
            assert has_pattern(pairs, pattern).mean() == share


def test_generated_content_is_unchanged() -> None:
    """If this fails, the generator has changed: raise VERSION, so that old stored data is not reused."""
    hashes = {name: build(name, **SMALL).content_hash for name in ("train", "valid", "operators-12")}
    assert (task.VERSION, hashes) == (
        2,
        {
            "train": "f927fe73777cc75796bb033805011099",
            "valid": "30f60a648215c2cfcb522e078815320c",
            "operators-12": "5f45d2b589274d4d5b6b8cf20385f8d2",
        },
    )


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


def test_changed_files_have_different_content(published_files: Path, tmp_path: Path) -> None:
    config = task_catalog.task_config({"name": "logical_inference", "folder": str(published_files)})
    before = open_split(config, "operators-12", tmp_path)
    file = published_files / "test12"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:7]))
    after = open_split(config, "operators-12", tmp_path)
    assert (len(before), len(after)) == (20, 7)
    assert before.verify()
    assert after.verify()


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


@pytest.mark.parametrize(
    "line",
    ["=\ta", "=\ta\tb\tc", "?\ta\tb", "=\t\tb", "=\ta\t( b ( xor c ) )", "", "a\tb\t="],
)
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


def test_empty_file_is_refused_and_byte_order_mark_is_skipped(published_files: Path) -> None:
    file = published_files / "train3"
    content = file.read_bytes()
    file.write_bytes("\ufeff".encode() + content)
    assert len(_read_file(file)) == 20
    file.write_bytes(b"")
    with pytest.raises(ValueError, match="train3"):
        _read_file(file)


SMALL_SEQUENCE = oracle.SMALL | {"form": "sequence"}


@pytest.mark.parametrize("split", ["valid", "held-out", "operators-3"])
def test_answer_of_a_sequence_is_the_label_of_the_pair(split: str) -> None:
    """The independent solver gives the same answers."""
    pair, sequence = (task_catalog.task_config(raw) for raw in (oracle.SMALL, SMALL_SEQUENCE))
    labels, answers = task.build(pair, split), task.build(sequence, split)
    assert labels["tokens"] == answers["tokens"]
    assert answers["answer"].to_pylist() == [[label] for label in labels["label"].to_pylist()]
    assert str(answers.schema.field("answer").type) == "large_list<item: uint8>"
    for tokens, answer in list(zip(answers["tokens"], answers["answer"], strict=True))[:20]:
        assert [oracle.solve(task.decode(tokens.as_py()))] == answer.as_py()


def test_sequence_form_measures_decoded_answers(tmp_path: Path) -> None:
    """Two steps of a tiny model report metrics of decoded answers and of teacher forcing."""
    model = {"name": "universal", "width": 8, "heads": 2, "max_layers": 2}
    train = {"steps": 2, "batch_size": 3, "report_every": 2, "valid_examples": 20, "decode_examples": 9}
    metrics = {}
    for beam_size in (1, 3):
        settings = {"task": SMALL_SEQUENCE, "model": model, "train": train | {"beam_size": beam_size}}
        job = Job(settings, seed=1, phase="confirm", splits=("operators-1",), data_dir=tmp_path)
        training = Training(job)
        metrics[beam_size] = training.advance().metrics
        assert training.finished
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    training.save(folder)
    greedily = {**settings, "train": train}
    posthoc_metrics = (
        Training(replace(job, settings=greedily, phase="posthoc", source=folder)).advance().metrics
    )
    greedy, beam = metrics[1], metrics[3]
    assert posthoc_metrics["operators-1/exact_match"] == greedy["operators-1/exact_match"]
    assert greedy["valid/accuracy_whole"] * 20 == pytest.approx(round(greedy["valid/accuracy_whole"] * 20))
    assert greedy["valid/exact_match"] * 9 == pytest.approx(round(greedy["valid/exact_match"] * 9))
    # A greedily decoded answer is right if and only if all tokens are right under teacher forcing.
    assert greedy["operators-1/exact_match"] == pytest.approx(greedy["operators-1/accuracy_whole"])
    assert 0 < greedy["operators-1/exact_match_floor"] < 1
    # The second token is always the end, so predicting by position gets at least half of the tokens.
    assert greedy["operators-1/floor"] == pytest.approx((1 + greedy["operators-1/exact_match_floor"]) / 2)
    assert beam["operators-1/loss"] == greedy["operators-1/loss"]
    assert beam.keys() == greedy.keys()
