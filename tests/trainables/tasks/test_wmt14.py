"""WMT14 reads BPE files and their joint vocabulary, and computes the metrics of its papers."""

import logging
import re
import shutil
from pathlib import Path

import pytest

from tests.oracles.solvers import wmt14_solver as oracle
from trainables.tasks import wmt14 as task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the solver's files that a test may change."""
    return Path(shutil.copytree(oracle.FOLDER / "one", tmp_path / "some folder"))


def config(folder: Path | None = None, **settings: object) -> task.Config:
    return task.Config(folder=None if folder is None else str(folder), **settings)


def test_languages_share_one_vocabulary(folder: Path) -> None:
    shape = task.shape(config(folder))
    entries = oracle.lines("dict.txt")
    assert shape.vocabulary_size == shape.num_classes == 3 + len(entries)
    assert (shape.pad_id, shape.end_id, shape.shared_vocabulary) == (0, 1, True)
    assert (shape.length_max, shape.answer_length_max) == (251, 251)
    valid = task.build(config(folder), "valid").to_pydict()
    assert all(row[-1] == 1 for row in valid["tokens"])
    assert not any(1 in row for row in valid["answer"])
    assert valid["answer"][0][-2:] == [2, 2], "unknown pieces must have the id 2"


def test_long_and_empty_pairs_are_excluded_from_training(folder: Path) -> None:
    pairs = zip(oracle.lines("train.en"), oracle.lines("train.de"), strict=True)
    longer = [max(len(sentence.split()) for sentence in pair) for pair in pairs if all(pair)]
    assert len(longer) == 52
    for size in (1, 5, 9, 10):
        expected = sum(length <= size for length in longer)
        assert len(task.build(config(folder, pieces_max=size), "train")) == expected
    assert len(task.build(config(folder, pieces_max=1), "valid")) == 8, (
        "only the training split may exclude pairs"
    )


def test_vocabulary_size_must_hold_all_pieces(folder: Path) -> None:
    needed = 3 + len(oracle.lines("dict.txt"))
    assert len(task.build(config(folder, vocabulary_size=needed), "test")) == 9
    with pytest.raises(ValueError, match=rf"vocabulary_size .*{needed} .*{needed - 1}"):
        task.build(config(folder, vocabulary_size=needed - 1), "test")


def test_vocabulary_of_another_text_is_reported(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        task.build(config(folder), "train")
        assert not caplog.text
        (folder / "dict.txt").write_text("the 9\ndie 8\n")
        task.build(config(folder), "train")
    for name in ("train.en", "train.de"):
        assert re.search(rf"{name}: \d+ of \d+ .*<unk>", caplog.text)


def test_empty_line_of_a_test_error_has_file_and_line(folder: Path) -> None:
    file = folder / "test.de"
    lines = file.read_text().splitlines()
    lines[4] = " "
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"test\.de, line 5"):
        task.build(config(folder), "test")


@pytest.fixture
def words(folder: Path) -> dict[str, int]:
    """Ids of the pieces of a German vocabulary."""
    text = "Die Bundes@@ kanz@@ lerin @-@ US-@@ Pre@@ is sinkt . &quot; Tok@@ io der a-b-c , nicht"
    entries = text.split()
    (folder / "dict.txt").write_text("".join(f"{entry} 1\n" for entry in entries))
    return {entry: 3 + place for place, entry in enumerate(entries)} | {"<unk>": 2}


def score_texts(
    folder: Path, words: dict[str, int], translations: list[str], references: list[str]
) -> dict[str, float]:
    ids = [[[words[word] for word in text.split()] for text in texts] for texts in (translations, references)]
    return dict(task.score(config(folder), *ids))


REFERENCES = [
    "Die Bundes@@ kanz@@ lerin sinkt nicht , der Pre@@ is sinkt .",
    "Die US-@@ Tok@@ io , &quot; a-b-c &quot; .",
]


def test_translation_equal_to_the_reference_has_full_scores(folder: Path, words: dict[str, int]) -> None:
    assert score_texts(folder, words, REFERENCES, REFERENCES) == pytest.approx(
        {"bleu": 100, "sacrebleu": 100}
    )


def test_bleu_splits_compounds(folder: Path, words: dict[str, int]) -> None:
    """Pieces are joined and `US-Tokio` is split by hand; the oracle computes BLEU from its definition."""
    translations = [
        "Die Bundes@@ kanz@@ lerin sinkt nicht , der Tok@@ io .",
        "Die US-@@ Pre@@ is , &quot; a-b-c &quot; .",
    ]
    tokens = [
        ["Die", "Bundeskanzlerin", "sinkt", "nicht", ",", "der", "Tokio", "."],
        ["Die", "US", "##AT##-##AT##", "Preis", ",", "&quot;", "a", "##AT##-##AT##", "b-c", "&quot;", "."],
    ]
    references = [
        ["Die", "Bundeskanzlerin", "sinkt", "nicht", ",", "der", "Preis", "sinkt", "."],
        ["Die", "US", "##AT##-##AT##", "Tokio", ",", "&quot;", "a", "##AT##-##AT##", "b-c", "&quot;", "."],
    ]
    expected = oracle.bleu(tokens, references)
    assert 40 < expected < 80
    assert score_texts(folder, words, translations, REFERENCES)["bleu"] == pytest.approx(expected)


def test_sacrebleu_uses_detokenised_text(folder: Path, words: dict[str, int]) -> None:
    """Text is joined and unescaped by hand, then measured with sacreBLEU's tokens and smoothing."""
    import sacrebleu

    translations = ["Die Tok@@ io @-@ Pre@@ is , &quot; US-@@ is &quot; .", "Die <unk> ."]
    references = ["Die Tok@@ io @-@ Pre@@ is , &quot; US-@@ is nicht &quot; .", "Die <unk> ."]
    printed = ['Die Tokio-Preis, "US-is".', "Die <unk>."]
    plain_references = ['Die Tokio-Preis, "US-is nicht".', "Die <<unk>>."]
    expected = sacrebleu.corpus_bleu(printed, [plain_references]).score
    assert 40 < expected < 60
    assert score_texts(folder, words, translations, references)["sacrebleu"] == pytest.approx(expected)


def test_metrics_are_known_without_files(tmp_path: Path) -> None:
    """A spec that searches for BLEU can be planned without the files."""
    text = [[3, 4, 5, 6, 7]]
    for folder_ in (None, tmp_path / "nowhere"):
        metrics = task.score(config(folder_, vocabulary_size=9), text, text)
        assert metrics == pytest.approx({"bleu": 100, "sacrebleu": 100})
    with pytest.raises(ValueError, match="folder"):
        task.score(config(), text, text)
