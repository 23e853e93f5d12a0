"""Text, retrieval and image of Long Range Arena read the published files and refuse others."""

import csv
import logging
import os
import pickle
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tests.oracles.solvers import lra_image_solver, lra_retrieval_solver, lra_text_solver
from trainables.data import files
from trainables.data.split import Split, content_hash
from trainables.data.store import open_split, split_path
from trainables.readers.cifar import read_images
from trainables.task_catalog import label_names, task_config, task_module
from trainables.tasks import lra_image, lra_retrieval, lra_text


def build_split(split: str, **settings: Any) -> Split:
    module, config = task_module(settings["name"]), task_config(settings)
    table = module.build(config, split)
    return Split(table, module.shape(config).pad_id, content_hash(table))


def texts(split: Split, module: Any) -> list[str]:
    batch = split.batch(np.arange(len(split)))
    return [module.decode(row[mask].tolist()) for row, mask in zip(batch.tokens, batch.mask, strict=True)]


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    return Path(lra_text_solver.write_files(tmp_path / "aclImdb", 3))


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    return Path(lra_retrieval_solver.write_files(tmp_path / "tsv data", 3))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return Path(lra_image_solver.write_files(tmp_path / "cifar-10-batches-py", 3, "python 2"))


def test_review_tokens_are_bytes(reviews: Path) -> None:
    (reviews / "test/neg/0_2.txt").write_bytes(bytes(range(256)))
    test = build_split("test", name="lra_text", folder=str(reviews))
    row = test.batch(np.asarray([0]))
    assert row.tokens[0, row.mask[0]].tolist() == list(range(1, 257))
    assert row.labels.tolist() == [0]
    assert lra_text.shape(lra_text.Config()).vocabulary_size == 257
    train = build_split("train", name="lra_text", folder=str(reviews), valid_examples=4, length_max=30)
    assert train.lengths.max() == 30
    assert (len(train), len(test)) == (36, 20)
    assert train.label_histogram.keys() == {0, 1}


def test_validation_reviews_are_not_in_training(reviews: Path) -> None:
    parts = {
        name: set(texts(build_split(name, name="lra_text", folder=str(reviews), valid_examples=9), lra_text))
        for name in ("train", "valid", "test")
    }
    assert {name: len(part) for name, part in parts.items()} == {"train": 31, "valid": 9, "test": 20}
    assert not parts["train"] & parts["valid"]
    assert all(" train " in text for text in parts["train"] | parts["valid"])


def test_validation_split_can_be_the_test_split(reviews: Path) -> None:
    settings = {"name": "lra_text", "folder": str(reviews), "validate_on": "test"}
    assert len(build_split("train", **settings)) == 40
    assert build_split("valid", **settings).content_hash == build_split("test", **settings).content_hash
    with pytest.raises(ValidationError, match="valid_examples=5 and validate_on='test'"):
        task_config(settings | {"valid_examples": 5})


def test_pair_tokens_are_two_texts_of_bytes(papers: Path) -> None:
    line = b'1.0\tA\tB\t"one\xff\ttwo"and more\n'
    (papers / "new_aan_pairs.eval.tsv").write_bytes("\ufeff".encode() + line + b"0\tA\tB\tx\ty\r\n")
    valid = build_split("valid", name="lra_retrieval", folder=str(papers), length_max=5)
    assert texts(valid, lra_retrieval) == [r'"one\xff <sep> two"a', "x <sep> y"]
    assert valid.batch(np.arange(2)).labels.tolist() == [1, 0]
    assert valid.batch(np.asarray([0])).tokens[0].tolist().count(257) == 1
    shape = lra_retrieval.shape(lra_retrieval.Config())
    assert (shape.length_max, shape.separator_id, shape.vocabulary_size) == (8193, 257, 258)


def test_quotes_can_join_columns_and_lines(papers: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Quoting follows Python's csv. Six lines are four rows, one of which has too many columns."""
    lines = (
        b'1.0\tA\tB\t"one\ttwo" and\xff\tthree "4"',
        b'0.0\tA\tB\t"begun\tsecond',
        b'1.0\tC\tD\tended"" there" and more\tlast',
        b"0.0\tA\tB\tx\ty\tz",
        b'1.0\tA\tB\tx\t"never ended',
        b"1.0\tA\tB\tx\ty",
    )
    (papers / "new_aan_pairs.eval.tsv").write_bytes(b"\n".join(lines))
    settings = {"name": "lra_retrieval", "folder": str(papers)}
    with caplog.at_level(logging.WARNING):
        valid = build_split("valid", **settings, quotes="fields")
    assert texts(valid, lra_retrieval) == [
        'one\ttwo and\\xff <sep> three "4"',
        'begun\tsecond\n1.0\tC\tD\tended" there and more <sep> last',
        "x <sep> never ended\n1.0\tA\tB\tx\ty",
    ]
    assert valid.batch(np.arange(3)).labels.tolist() == [1, 0, 1]
    assert "new_aan_pairs.eval.tsv: 1 of 4 rows" in caplog.text
    with pytest.raises(ValueError, match=r"eval\.tsv, line 1"):
        build_split("valid", **settings)
    (papers / "new_aan_pairs.eval.tsv").write_bytes(lines[5] + b"\r" + lines[5])
    with pytest.raises(ValueError, match=r"eval\.tsv, row 1"):
        build_split("valid", **settings, quotes="fields")
    (papers / "new_aan_pairs.eval.tsv").write_bytes(b'1.0\tA\tB\tx\t"' + b"y" * 200_000 + b'"')
    assert build_split("valid", **settings, quotes="fields", length_max=10).lengths.tolist() == [12]
    assert csv.field_size_limit() == 131_072


def test_pairs_with_an_empty_text_are_skipped_and_counted(
    papers: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = papers / "new_aan_pairs.test.tsv"
    file.write_bytes(b"1.0\tA\tB\t\tx\n" + file.read_bytes() + b"0.0\tA\tB\tx\t\n")
    with caplog.at_level(logging.WARNING):
        assert len(build_split("test", name="lra_retrieval", folder=str(papers))) == 10
    assert "new_aan_pairs.test.tsv: 2 of 12 pairs" in caplog.text


def test_images_are_grey_and_split_by_order(images: Path) -> None:
    """40 training images are split into 36 and 4; grey values follow TensorFlow's formula in floats."""
    batches = lra_image_solver.batches(3)
    colours, labels = (
        np.concatenate([batches[f"data_batch_{number}"][part] for number in range(1, 6)]) for part in (0, 1)
    )
    red, green, blue = np.moveaxis(colours.reshape(40, 3, 1024) / 255, 1, 0)
    grey = np.floor((0.2989 * red + 0.5870 * green + 0.1140 * blue) * 255.5 + 1e-9).astype(int)
    for name, part in (("train", slice(36)), ("valid", slice(36, 40))):
        batch = (split := build_split(name, name="lra_image", folder=str(images))).batch(
            np.arange(len(split))
        )
        assert batch.tokens.tolist() == grey[part].tolist()
        assert batch.labels.tolist() == labels[part].tolist()
    assert lra_image.grey(np.full((1, 3072), 255, dtype=np.uint8)).tolist() == [[255] * 1024]
    assert lra_image.shape(lra_image.Config()).pad_id == 256


@pytest.mark.parametrize("form", ["binary", "python 3"])
def test_published_file_formats_have_the_same_content(images: Path, tmp_path: Path, form: str) -> None:
    other_folder = lra_image_solver.write_files(tmp_path / "other", 3, form)
    for name in ("train", "valid", "test"):
        first_split, second_split = (
            build_split(name, name="lra_image", folder=str(folder)) for folder in (images, other_folder)
        )
        assert first_split.content_hash == second_split.content_hash


class Payload:
    """Runs a command when a careless reader unpickles it."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.given = call, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call, self.given


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "payload",
    [
        Payload(os.system, "touch payload-ran"),
        Payload(eval, "open('payload-ran', 'w')"),
        Payload(np.load, "payload-ran"),
        Payload(np.ndarray, (1 << 40,)),
        {b"data": Payload(os.system, "touch payload-ran"), b"labels": []},
    ],
    ids=["system", "eval", "load", "ndarray", "inside"],
)
def test_hostile_pickle_is_refused_and_not_run(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, payload: object, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (images / "data_batch_2").write_bytes(pickle.dumps(payload, protocol))
    config = lra_image.Config(folder=str(images))
    with pytest.raises(ValueError, match="data_batch_2"):
        open_split(config, "train", tmp_path / "data")
    assert not (tmp_path / "payload-ran").exists()
    assert not split_path(config, "train", tmp_path / "data").exists()


def pickled_array(kind: bytes = b"u1", state: bytes = b"(K\x01K\x01K\x02\x86ctype\n\x89C\x02abt") -> bytes:
    """Return a batch whose array is rebuilt from these opcodes."""
    start = b"cnumpy.core.multiarray\n_reconstruct\n)R"
    dtype = b"cnumpy\ndtype\nC" + bytes([len(kind)]) + kind + b"\x85R"
    return b"\x80\x03}C\x04data" + start + state.replace(b"ctype\n", dtype) + b"bsC\x06labels]s."


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "EOFError"),
        (b"\x80\x02}(", r"\w+Error"),
        (pickle.dumps([1, 2]), " list "),
        (pickle.dumps({b"data": b"", b"labels": [1]}), " 3072 "),
        (pickled_array(b"O"), "b'O'"),
        (pickled_array(state=b"(K\x01K\x01K\x09\x86ctype\n\x89C\x02abt"), "Refused"),
        (pickled_array(state=b"(K\x01K\x01K\x02\x86ctype\n\x88C\x02abt"), "Refused"),
        (pickled_array(), " 3072 "),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00zip\x86R.", "Refused"),
        (b"\x80\x02cnumpy\nndarray\nK\x05\x85R.", "Refused"),
        (b"\x80\x02cos\nsystem\n.", r"Refused: .*os\.system"),
        (b"\x80\x02cnumpy\ndtype\n}X\x0b\x00\x00\x00__globals__}sb.", r"\w+"),
    ],
)
def test_malformed_batch_is_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    file = tmp_path / "data_batch_1"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"data_batch_1: .*{fault}"):
        read_images(file)


@pytest.mark.parametrize(
    ("labels", "fault"),
    [([0] * 7, " 8 images"), ([0, 1, 10, 0, 0, 0, 0, 0], "image 2: .* 10"), ([True] * 8, "image 0: .*True")],
)
def test_invalid_labels_are_refused(tmp_path: Path, labels: list[int], fault: str) -> None:
    file = tmp_path / "test_batch"
    colours = np.zeros((8, 3072), dtype=np.uint8)
    file.write_bytes(pickle.dumps({b"data": colours, b"labels": labels}, protocol=2))
    with pytest.raises(ValueError, match=fault):
        read_images(file)


def test_invalid_record_error_has_the_byte_offset(tmp_path: Path) -> None:
    file = tmp_path / "data_batch_1.bin"
    records = np.zeros((3, 3073), dtype=np.uint8)
    records[2, 0] = 11
    file.write_bytes(records.tobytes())
    with pytest.raises(ValueError, match=r"data_batch_1\.bin, byte 6146"):
        read_images(file)
    file.write_bytes(records.tobytes()[:-1])
    with pytest.raises(ValueError, match="3073"):
        read_images(file)


FROM_FILES = ("lra_text", "lra_retrieval", "lra_image")


@pytest.mark.parametrize("name", FROM_FILES)
def test_task_without_a_folder_can_be_planned_but_not_built(name: str, tmp_path: Path) -> None:
    config = task_config({"name": name})
    assert [info.name for info in task_module(name).splits(config)] == ["train", "valid", "test"]
    for attempt in (
        lambda: task_module(name).build(config, "train"),
        lambda: open_split(config, "train", tmp_path / "data"),
    ):
        with pytest.raises(ValueError, match="folder"):
            attempt()
    assert not (tmp_path / "data").exists()


def test_empty_reviews_are_refused(reviews: Path) -> None:
    (reviews / "test/pos/3_7.txt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"3_7\.txt"):
        build_split("test", name="lra_text", folder=str(reviews))
    with pytest.raises(ValueError, match="valid_examples"):
        build_split("train", name="lra_text", folder=str(reviews))
    for file in (reviews / "train/pos").iterdir():
        file.unlink()
    with pytest.raises(ValueError, match="train/pos"):
        build_split("train", name="lra_text", folder=str(reviews), valid_examples=2)


@pytest.mark.parametrize(
    "line",
    [
        b"1.0\tA\tB\tx",
        b"1.0\tA\tB\tx\ty\tz",
        b"2.0\tA\tB\tx\ty",
        b"",
        b"True\tA\tB\tx\ty",
        b"A\tB\tx\ty\t1.0",
    ],
)
def test_malformed_pair_error_has_file_and_line(papers: Path, line: bytes, tmp_path: Path) -> None:
    file = papers / "new_aan_pairs.train.tsv"
    lines = file.read_bytes().splitlines()
    lines[6] = line
    file.write_bytes(b"\n".join(lines))
    config = lra_retrieval.Config(folder=str(papers))
    with pytest.raises(ValueError, match=r"train\.tsv, line 7"):
        open_split(config, "train", tmp_path / "data")
    assert not split_path(config, "train", tmp_path / "data").exists()
    (papers / "new_aan_pairs.test.tsv").write_bytes(b"")
    with pytest.raises(ValueError, match=r"test\.tsv"):
        lra_retrieval.build(config, "test")


def test_source_digest_depends_on_content_and_is_cached(
    reviews: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = lra_text.Config(folder=str(reviews))
    before = lra_text.source_digest(config)
    read_once = files._join_contents
    calls = []
    monkeypatch.setattr(
        files, "_join_contents", lambda *arguments: (calls.append(arguments), read_once(*arguments))[1]
    )
    assert lra_text.source_digest(config) == before
    assert not calls
    file = reviews / "test/pos/3_7.txt"
    content = file.read_bytes()
    time.sleep(0.01)
    file.write_bytes(content[::-1])
    changed = lra_text.source_digest(config)
    assert (changed != before, len(calls)) == (True, 1)
    time.sleep(0.01)
    file.write_bytes(content)
    assert lra_text.source_digest(config) == before, "the digest must depend on content, not on times"
    file.rename(file.with_name("another_7.txt"))
    assert lra_text.source_digest(config) != before


def test_large_files_are_read_with_little_memory(papers: Path) -> None:
    """Of 32 MB in long lines, memory holds only truncated rows, at most twice."""
    file = papers / "new_aan_pairs.train.tsv"
    with file.open("wb") as lines:
        for number in range(400):
            lines.write(b"1.0\tA\tB\t%d %s\t%s\n" % (number, b"x" * 40_000, b"y" * 40_000))
    config = lra_retrieval.Config(folder=str(papers), length_max=1000)
    lra_retrieval.build(config, "valid")  # imports must not count
    tracemalloc.start()
    table = lra_retrieval.build(config, "train")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(table), table["tokens"].nbytes) == (400, pytest.approx(400 * 2001 * 2, rel=0.01))
    assert peak < 2.5 * 400 * 2001 * 2 + 1_000_000


@pytest.mark.parametrize("name", [*FROM_FILES, "pathfinder"])
def test_class_names_are_distinct_and_no_numbers(name: str) -> None:
    config = task_config({"name": name})
    assert len(set(label_names(config))) == task_module(name).shape(config).num_classes
    assert not any(each.isdecimal() for each in label_names(config))
