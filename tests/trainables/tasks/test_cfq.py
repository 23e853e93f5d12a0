"""CFQ reads its vocabulary and questions from a folder; specs can be planned without the files."""

import shutil
from pathlib import Path

import pytest

from tests.oracles.solvers import cfq_solver as oracle
from trainables.data.store import open_split
from trainables.tasks import cfq as task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the solver's files that a test may change."""
    return Path(shutil.copytree(oracle.FOLDER / "one", tmp_path / "some folder"))


def config(folder: Path | None = None, **settings: object) -> task.Config:
    return task.Config(folder=None if folder is None else str(folder), **settings)


def queries(config_: task.Config, split: str) -> list[str]:
    words = task._vocabulary(config_, "tgt")
    return [" ".join(words.words(row)) for row in task.build(config_, split)["answer"].to_pylist()]


def test_words_are_numbered_by_frequency(folder: Path) -> None:
    (folder / "MCD1" / "train.src").write_text("b a\nc b\na d\n")
    assert task._vocabulary(config(folder), "src").entries == ("<pad>", "</s>", "<unk>", "a", "b", "c", "d")


def test_vocabulary_file_replaces_counting(folder: Path) -> None:
    (folder / "MCD1" / "vocab.src").write_text("film 3\nDid\n")
    config_ = config(folder)
    assert task.shape(config_).vocabulary_size == 5
    text = task.decode(task.build(config_, "train")["tokens"][0].as_py(), config_)
    assert text.startswith("Did <unk> <unk> <unk> film <unk>")
    digest_before = task.source_digest(config_)
    (folder / "MCD1" / "vocab.src").write_text("Did\nfilm 3\n")
    assert task.source_digest(config_) != digest_before


def test_spec_can_be_planned_without_files(tmp_path: Path) -> None:
    sizes = {"source_vocabulary_size": 90, "target_vocabulary_size": 110}
    for folder_ in (None, tmp_path / "nowhere"):
        shape = task.shape(config(folder_, **sizes))
        assert (shape.vocabulary_size, shape.num_classes) == (90, 110)
        assert (shape.length_max, shape.answer_length_max) == (65, 257)
    assert [info.name for info in task.splits(config())] == ["train", "valid", "test"]


def test_vocabulary_size_must_hold_all_words(folder: Path) -> None:
    num_words = task.shape(config(folder)).vocabulary_size
    assert len(task.build(config(folder, source_vocabulary_size=num_words + 5), "valid")) == 9
    with pytest.raises(ValueError, match=rf"source_vocabulary_size .*{num_words}"):
        task.build(config(folder, source_vocabulary_size=num_words - 1), "valid")
    with pytest.raises(ValueError, match="target_vocabulary_size"):
        task.build(config(folder, target_vocabulary_size=3), "valid")


def test_missing_files_error_names_the_files(folder: Path, tmp_path: Path) -> None:
    (folder / "MCD2" / "dev.tgt").unlink()
    (folder / "MCD2" / "test.src").unlink()
    message = r"MCD2/dev\.tgt, MCD2/test\.src"
    with pytest.raises(ValueError, match=message):
        task.shape(config(folder, division="MCD2"))
    with pytest.raises(ValueError, match=message):
        open_split(config(folder, division="MCD2"), "train", tmp_path / "data")
    assert len(open_split(config(folder, division="MCD3"), "train", tmp_path / "data")) == 60


def test_divisions_and_changed_files_have_different_content(folder: Path, tmp_path: Path) -> None:
    hashes = {
        open_split(config(folder, division=name), "test", tmp_path).content_hash
        for name in ("MCD1", "MCD2", "MCD3")
    }
    file = folder / "MCD1" / "test.tgt"
    file.write_text(file.read_text().replace("film.film", "film.editor", 1))
    hashes.add(open_split(config(folder), "test", tmp_path).content_hash)
    assert len(hashes) == 4


@pytest.mark.parametrize(
    ("name", "number", "line", "message"),
    [
        ("dev.src", 3, "", r"dev\.src, line 3: .*question_words_max\), got 0"),
        ("dev.tgt", 9, "a " * 257, r"dev\.tgt, line 9: .*query_words_max\), got 257"),
        ("dev.tgt", 9, "a\nb", r"dev\.src .*dev\.tgt .* 9 .*10"),
    ],
)
def test_malformed_line_error_has_file_and_line(
    name: str, number: int, line: str, message: str, folder: Path
) -> None:
    file = folder / "MCD1" / name
    lines = file.read_text().splitlines()
    lines[number - 1] = line
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=message):
        task.build(config(folder), "valid")


def test_simplified_queries_have_smaller_vocabularies_and_limits(folder: Path) -> None:
    """The two clauses of M0 that share an object become one clause."""
    lines = [
        ("Did M0 direct and write ?x0", "SELECT count ( * ) WHERE { M0 a.b ?x0 . M0 a.a ?x0 . ?x0 a film }"),
        ("Who directs M0", "SELECT DISTINCT ?x0 WHERE { M0 film.film.directed_by ?x0 }"),
    ]
    for division in ("MCD1", "MCD2"):
        for part in ("train", "dev", "test"):
            for extension, text in zip(("src", "tgt"), zip(*lines, strict=True), strict=True):
                (folder / division / f"{part}.{extension}").write_text("\n".join(text) + "\n")
    config_ = config(folder, simplify=True, query_words_max=16)
    assert queries(config_, "train") == [
        "SELECT count ( * ) WHERE { ?x0 a film . M0 a.a a.b ?x0 }",
        "SELECT DISTINCT ?x0 WHERE { M0 film.film.directed_by ?x0 }",
    ]
    assert queries(config(folder), "train") == [query for _, query in lines]
    with pytest.raises(ValueError, match="line 1"):
        task.build(config(folder, query_words_max=15), "train")
    inverted = config(folder, simplify=True, division="MCD2")
    assert queries(inverted, "valid")[1] == "SELECT DISTINCT ?x0 WHERE { ?x0 film.director.film M0 }"
    assert task.shape(config_).num_classes == task.shape(config(folder)).num_classes


def test_simplified_queries_in_files_are_refused(folder: Path) -> None:
    file = folder / "MCD1" / "train.tgt"
    lines = file.read_text().splitlines()
    lines[6] = "SELECT count ( * ) WHERE { M0 M1 a.b ?x0 }"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"train\.tgt, line 7"):
        task.shape(config(folder, simplify=True))


def test_exact_match_counts_whole_queries() -> None:
    references = [[3, 4], [3], [1, 4], [5, 6]]
    assert task.score(config(), [[3, 4], [3, 3], [1, 4], (5, 6)], references) == {"exact_match": 0.5}
    assert task.score(config(), [[], [4], [1], []], references) == {"exact_match": 0.0}
