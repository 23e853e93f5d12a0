"""WMT14 is read from BPE files with their joint vocabulary, and measured as its papers do."""

import logging
import re
import shutil
from pathlib import Path

import pytest

from tests.oracles.solvers import wmt14_solver as oracle
from trainables.data.store import open_split
from trainables.tasks import wmt14 as task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the solver's files that may be spoilt."""
    return Path(shutil.copytree(oracle.FOLDER / "one", tmp_path / "some folder"))


def config(folder: Path | None = None, **settings: object) -> task.Config:
    return task.Config(folder=None if folder is None else str(folder), **settings)


def test_both_languages_share_their_ids(folder: Path) -> None:
    shape = task.shape(config(folder))
    entries = oracle.lines("dict.txt")
    assert shape.vocabulary_size == shape.num_classes == 3 + len(entries)
    assert (shape.pad_id, shape.end_id, shape.shared_vocabulary) == (0, 1, True)
    assert (shape.length_max, shape.answer_length_max) == (251, 251)
    valid = task.build(config(folder), "valid").to_pydict()
    assert all(row[-1] == 1 for row in valid["tokens"])
    assert not any(1 in row for row in valid["answer"])
    assert valid["answer"][0][-2:] == [2, 2], "pieces that the vocabulary lacks"


def test_long_and_empty_pairs_are_no_training_pairs(folder: Path) -> None:
    pairs = zip(oracle.lines("train.en"), oracle.lines("train.de"), strict=True)
    longer = [max(len(side.split()) for side in pair) for pair in pairs if all(pair)]
    assert len(longer) == 52
    for size in (1, 5, 9, 10):
        expected = sum(length <= size for length in longer)
        assert len(task.build(config(folder, pieces_max=size), "train")) == expected
    assert len(task.build(config(folder, pieces_max=1), "valid")) == 8, "nothing but training is chosen from"


def test_a_spec_can_be_planned_without_files(tmp_path: Path) -> None:
    for where in (None, tmp_path / "nowhere"):
        assert task.shape(config(where, vocabulary_size=32_771)).vocabulary_size == 32_771
    assert [info.name for info in task.splits(config())] == ["train", "valid", "test"]


def test_the_size_must_hold_the_vocabulary(folder: Path) -> None:
    needed = 3 + len(oracle.lines("dict.txt"))
    assert len(task.build(config(folder, vocabulary_size=needed), "test")) == 9
    with pytest.raises(
        ValueError, match=rf"vocabulary_size must be at least {needed} to hold dict.txt .*, got {needed - 1}"
    ):
        task.build(config(folder, vocabulary_size=needed - 1), "test")


def test_a_vocabulary_of_other_text_is_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        task.build(config(folder), "train")
        assert not caplog.text
        (folder / "dict.txt").write_text("the 9\ndie 8\n")
        task.build(config(folder), "train")
    for name in ("train.en", "train.de"):
        message = rf"{name}: \d+ of \d+ words are not in the vocabulary and are read as <unk>; check that"
        assert re.search(message, caplog.text)


def test_without_a_folder_it_is_told_what_belongs_into_one(tmp_path: Path) -> None:
    message = "folder must name a folder"
    with pytest.raises(ValueError, match=message):
        task.shape(config())
    with pytest.raises(ValueError, match=message):
        open_split(config(vocabulary_size=9), "train", tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_other_files_are_other_data(folder: Path, tmp_path: Path) -> None:
    before = open_split(config(folder), "test", tmp_path)
    file = folder / "test.de"
    file.write_text(file.read_text().replace("rot", "ist"))
    after = open_split(config(folder), "test", tmp_path)
    assert len(before) == len(after)
    assert before.content_hash != after.content_hash


@pytest.mark.parametrize("name", ["test.en", "test.de"])
def test_an_empty_line_to_be_translated_is_told(name: str, folder: Path) -> None:
    file = folder / name
    lines = file.read_text().splitlines()
    lines[4] = " "
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=rf"{name}, line 5: expected a sentence, got an empty line"):
        task.build(config(folder), "test")


def test_files_that_do_not_pair_are_told(folder: Path) -> None:
    with (folder / "train.de").open("a") as file:
        file.write("rot\n")
    with pytest.raises(ValueError, match=r"train\.en and train\.de"):
        task.build(config(folder), "train")


def test_a_folder_without_sentences_is_refused(folder: Path) -> None:
    for side in ("en", "de"):
        (folder / f"train.{side}").write_text("\n")
    with pytest.raises(ValueError, match=r"train\.en and train\.de"):
        task.build(config(folder), "train")


@pytest.fixture
def words(folder: Path) -> dict[str, int]:
    """Ids of a German vocabulary."""
    entries = [
        "Die",
        "Bundes@@",
        "kanz@@",
        "lerin",
        "@-@",
        "US-@@",
        "Pre@@",
        "is",
        "sinkt",
        ".",
        "&quot;",
        "Tok@@",
        "io",
    ]
    entries += ["der", "a-b-c", ",", "nicht"]
    (folder / "dict.txt").write_text("".join(f"{entry} 1\n" for entry in entries))
    return {entry: 3 + place for place, entry in enumerate(entries)} | {"<unk>": 2}


def scored(folder: Path, words: dict[str, int], written: list[str], asked: list[str]) -> dict[str, float]:
    ids = [[[words[word] for word in text.split()] for text in texts] for texts in (written, asked)]
    return dict(task.score(config(folder), *ids))


ASKED = [
    "Die Bundes@@ kanz@@ lerin sinkt nicht , der Pre@@ is sinkt .",
    "Die US-@@ Tok@@ io , &quot; a-b-c &quot; .",
]


def test_a_translation_like_the_reference_has_all_points(folder: Path, words: dict[str, int]) -> None:
    assert scored(folder, words, ASKED, ASKED) == pytest.approx({"bleu": 100, "sacrebleu": 100})


def test_bleu_is_that_of_tokens_with_split_compounds(folder: Path, words: dict[str, int]) -> None:
    """Pieces put together and `US-Tokio` split by hand; the measure itself written from its definition."""
    written = [
        "Die Bundes@@ kanz@@ lerin sinkt nicht , der Tok@@ io .",
        "Die US-@@ Pre@@ is , &quot; a-b-c &quot; .",
    ]
    tokens = [
        ["Die", "Bundeskanzlerin", "sinkt", "nicht", ",", "der", "Tokio", "."],
        ["Die", "US", "##AT##-##AT##", "Preis", ",", "&quot;", "a", "##AT##-##AT##", "b-c", "&quot;", "."],
    ]
    asked = [
        ["Die", "Bundeskanzlerin", "sinkt", "nicht", ",", "der", "Preis", "sinkt", "."],
        ["Die", "US", "##AT##-##AT##", "Tokio", ",", "&quot;", "a", "##AT##-##AT##", "b-c", "&quot;", "."],
    ]
    expected = oracle.bleu(tokens, asked)
    assert 40 < expected < 80
    assert scored(folder, words, written, ASKED)["bleu"] == pytest.approx(expected)


def test_sacrebleu_sees_text_as_it_is_printed(folder: Path, words: dict[str, int]) -> None:
    """Put together and unescaped by hand, then measured with sacreBLEU's own tokens and smoothing."""
    import sacrebleu

    written = ["Die Tok@@ io @-@ Pre@@ is , &quot; US-@@ is &quot; .", "Die <unk> ."]
    asked = ["Die Tok@@ io @-@ Pre@@ is , &quot; US-@@ is nicht &quot; .", "Die <unk> ."]
    printed = ['Die Tokio-Preis, "US-is".', "Die <unk>."]
    wanted = ['Die Tokio-Preis, "US-is nicht".', "Die <<unk>>."]
    expected = sacrebleu.corpus_bleu(printed, [wanted]).score
    assert 40 < expected < 60
    assert scored(folder, words, written, asked)["sacrebleu"] == pytest.approx(expected)


def test_what_the_vocabulary_lacks_is_never_right(folder: Path, words: dict[str, int]) -> None:
    text = ["Die <unk> sinkt nicht , der Pre@@ is sinkt ."]
    assert scored(folder, words, text, text)["bleu"] < 80


def test_words_in_no_order_have_no_points(folder: Path, words: dict[str, int]) -> None:
    """Words without a pair of them in order: a smoothed measure would give some points."""
    found = scored(folder, words, ["sinkt Die , der . nicht", ""], ASKED)
    assert found["bleu"] == 0 < found["sacrebleu"]


def test_measures_can_be_named_without_files(tmp_path: Path) -> None:
    """A spec that searches for BLEU can be planned where the files are not."""
    text = [[3, 4, 5, 6, 7]]
    for where in (None, tmp_path / "nowhere"):
        found = task.score(config(where, vocabulary_size=9), text, text)
        assert found == pytest.approx({"bleu": 100, "sacrebleu": 100})
    with pytest.raises(ValueError, match="folder"):
        task.score(config(), text, text)
