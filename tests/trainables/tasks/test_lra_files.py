"""Text, retrieval and image of Long Range Arena read the published files and refuse others."""

import logging
import os
import pickle
import time
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
from trainables.task_catalog import task_config, task_module
from trainables.tasks import lra_image, lra_retrieval, lra_text


def build_split(split: str, **settings: Any) -> Split:
    module, config = task_module(settings["name"]), task_config(settings)
    table = module.build(config, split)
    return Split(table, module.shape(config).pad_id, content_hash(table))


def texts(split: Split, module: Any) -> list[str]:
    batch = split.batch(np.arange(len(split)))
    return [module.decode(row[mask].tolist()) for row, mask in zip(batch.tokens, batch.mask, strict=True)]


@pytest.fixture
def reviews(tmp_path):
    return Path(lra_text_solver.write_files(tmp_path / "aclImdb", 3))


@pytest.fixture
def papers(tmp_path):
    return Path(lra_retrieval_solver.write_files(tmp_path / "tsv data", 3))


@pytest.fixture
def images(tmp_path):
    return Path(lra_image_solver.write_files(tmp_path / "cifar-10-batches-py", 3, "python 2"))


def test_review_tokens_are_bytes(reviews):
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


def test_validation_reviews_are_not_in_training(reviews):
    parts = {
        name: set(texts(build_split(name, name="lra_text", folder=str(reviews), valid_examples=9), lra_text))
        for name in ("train", "valid", "test")
    }
    assert {name: len(part) for name, part in parts.items()} == {"train": 31, "valid": 9, "test": 20}
    assert not parts["train"] & parts["valid"]
    assert all(" train " in text for text in parts["train"] | parts["valid"])


def test_validation_split_can_be_the_test_split(reviews):
    settings = {"name": "lra_text", "folder": str(reviews), "validate_on": "test"}
    assert len(build_split("train", **settings)) == 40
    assert build_split("valid", **settings).content_hash == build_split("test", **settings).content_hash
    with pytest.raises(ValidationError, match=r"valid_examples=5 .*validate_on='test'"):
        task_config(settings | {"valid_examples": 5})


def test_pair_tokens_are_two_texts_of_bytes(papers):
    line = b'1.0\tA\tB\t"one\xff\ttwo"and more\n'
    (papers / "new_aan_pairs.eval.tsv").write_bytes("\ufeff".encode() + line + b"0\tA\tB\tx\ty\r\n")
    valid = build_split("valid", name="lra_retrieval", folder=str(papers), length_max=5)
    assert texts(valid, lra_retrieval) == [r'"one\xff <sep> two"a', "x <sep> y"]
    assert valid.batch(np.arange(2)).labels.tolist() == [1, 0]
    assert valid.batch(np.asarray([0])).tokens[0].tolist().count(257) == 1
    shape = lra_retrieval.shape(lra_retrieval.Config())
    assert (shape.length_max, shape.separator_id, shape.vocabulary_size) == (8193, 257, 258)


def test_pairs_with_an_empty_text_are_skipped_and_counted(papers, caplog):
    file = papers / "new_aan_pairs.test.tsv"
    file.write_bytes(b"1.0\tA\tB\t\tx\n" + file.read_bytes() + b"0.0\tA\tB\tx\t\n")
    with caplog.at_level(logging.WARNING):
        assert len(build_split("test", name="lra_retrieval", folder=str(papers))) == 10
    assert "new_aan_pairs.test.tsv: 2 of 12 " in caplog.text


def test_images_are_grey_and_split_by_order(images):
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


def pickled_array(kind: bytes = b"u1", state: bytes = b"(K\x01K\x01K\x02\x86ctype\n\x89C\x02abt") -> bytes:
    """Return a batch whose array is rebuilt from these opcodes."""
    start = b"cnumpy.core.multiarray\n_reconstruct\n)R"
    dtype = b"cnumpy\ndtype\nC" + bytes([len(kind)]) + kind + b"\x85R"
    return b"\x80\x03}C\x04data" + start + state.replace(b"ctype\n", dtype) + b"bsC\x06labels]s."


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "EOFError"),
        (pickle.dumps({b"data": b"", b"labels": [1]}), " 3072 "),
        (pickled_array(b"O"), "b'O'"),
        (pickled_array(state=b"(K\x01K\x01K\x09\x86ctype\n\x89C\x02abt"), "Refused"),
        (pickled_array(), " 3072 "),
        (pickle.dumps({b"data": np.zeros((8, 3072), dtype=np.uint8), b"labels": [0] * 7}, 2), " 8 images"),
        (b"\x80\x02cos\nsystem\n.", r"RefusedPickle: .*os\.system"),
    ],
)
def test_malformed_batch_is_refused(tmp_path, content, fault):
    file = tmp_path / "data_batch_1"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"data_batch_1: .*{fault}"):
        read_images(file)


def test_invalid_record_error_has_the_byte_offset(tmp_path):
    file = tmp_path / "data_batch_1.bin"
    records = np.zeros((3, 3073), dtype=np.uint8)
    records[2, 0] = 11
    file.write_bytes(records.tobytes())
    with pytest.raises(ValueError, match=r"data_batch_1\.bin, byte 6146"):
        read_images(file)
    file.write_bytes(records.tobytes()[:-1])
    with pytest.raises(ValueError, match="3073"):
        read_images(file)


def test_empty_reviews_are_refused(reviews):
    (reviews / "test/pos/3_7.txt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"3_7\.txt"):
        build_split("test", name="lra_text", folder=str(reviews))
    with pytest.raises(ValueError, match="valid_examples"):
        build_split("train", name="lra_text", folder=str(reviews))
    for file in (reviews / "train/pos").iterdir():
        file.unlink()
    with pytest.raises(ValueError, match="train/pos"):
        build_split("train", name="lra_text", folder=str(reviews), valid_examples=2)


@pytest.mark.parametrize("line", [b"1.0\tA\tB\tx", b"2.0\tA\tB\tx\ty", b""])
def test_malformed_pair_error_has_file_and_line(papers, line, tmp_path):
    file = papers / "new_aan_pairs.train.tsv"
    lines = file.read_bytes().splitlines()
    lines[6] = line
    file.write_bytes(b"\n".join(lines))
    config = lra_retrieval.Config(folder=str(papers))
    with pytest.raises(ValueError, match=r"train\.tsv, line 7"):
        open_split(config, "train", tmp_path / "data")
    assert not split_path(config, "train", tmp_path / "data").exists()


def test_source_digest_depends_on_content_and_is_cached(reviews, monkeypatch):
    config = lra_text.Config(folder=str(reviews))
    digest_before = lra_text.source_digest(config)
    read_once = files._join_contents
    calls = []
    monkeypatch.setattr(
        files, "_join_contents", lambda *arguments: (calls.append(arguments), read_once(*arguments))[1]
    )
    assert lra_text.source_digest(config) == digest_before
    assert not calls
    file = reviews / "test/pos/3_7.txt"
    content = file.read_bytes()
    time.sleep(0.01)
    file.write_bytes(content[::-1])
    changed = lra_text.source_digest(config)
    assert (changed != digest_before, len(calls)) == (True, 1)


def test_binary_files_have_the_content_of_pickles(images, tmp_path):
    binary = lra_image_solver.write_files(tmp_path / "other", 3, "binary")
    hashes = {
        build_split("train", name="lra_image", folder=str(folder)).content_hash for folder in (images, binary)
    }
    assert len(hashes) == 1


class Payload:
    """Runs a command when a careless reader unpickles it."""

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.system, ("touch payload-ran",)


@pytest.mark.parametrize("payload", [Payload(), {b"data": Payload(), b"labels": []}], ids=["alone", "inside"])
def test_hostile_pickle_is_refused_and_not_run(images, tmp_path, monkeypatch, payload):
    monkeypatch.chdir(tmp_path)
    (images / "data_batch_2").write_bytes(pickle.dumps(payload))
    config = lra_image.Config(folder=str(images))
    with pytest.raises(ValueError, match="data_batch_2"):
        open_split(config, "train", tmp_path / "data")
    assert not (tmp_path / "payload-ran").exists()
    assert not split_path(config, "train", tmp_path / "data").exists()


def test_quotes_can_join_columns_and_lines(papers, caplog):
    """Quoting follows Python's csv. Four lines are three rows, one of which has too many columns."""
    lines = (
        b'1.0\tA\tB\t"one\ttwo" and\xff\tthree "4"',
        b'0.0\tA\tB\t"begun\tsecond',
        b'1.0\tC\tD\tended"" there" and more\tlast',
        b"0.0\tA\tB\tx\ty\tz",
    )
    (papers / "new_aan_pairs.eval.tsv").write_bytes(b"\n".join(lines))
    settings = {"name": "lra_retrieval", "folder": str(papers)}
    with caplog.at_level(logging.WARNING):
        valid = build_split("valid", **settings, quotes="fields")
    assert texts(valid, lra_retrieval) == [
        'one\ttwo and\\xff <sep> three "4"',
        'begun\tsecond\n1.0\tC\tD\tended" there and more <sep> last',
    ]
    assert "new_aan_pairs.eval.tsv: 1 of 3 " in caplog.text
    with pytest.raises(ValueError, match=r"eval\.tsv, line 1"):
        build_split("valid", **settings)
