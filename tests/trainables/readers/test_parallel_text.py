"""Parallel text is read pair by pair, and faults are reported with file and line."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.readers.parallel_text import Rows, Vocabulary, read_lines, read_pairs, read_words

MARKS = ("<pad>", "<unk>")


def files(folder: Path, source: bytes, target: bytes) -> tuple[Path, Path]:
    paths = folder / "some text.en", folder / "some text.de"
    for path, content in zip(paths, (source, target), strict=True):
        path.write_bytes(content)
    return paths


def test_lines_are_paired_by_number_despite_spaces(tmp_path: Path) -> None:
    """The last line may lack a line feed. A carriage return is a space, and only line feeds end lines."""
    pairs = read_pairs(*files(tmp_path, "a  b \r\n\nü\u2028c d".encode(), b"x\ny y\n\tz\n"))
    assert list(pairs) == [(1, ["a", "b"], ["x"]), (2, [], ["y", "y"]), (3, ["ü", "c", "d"], ["z"])]


@pytest.mark.parametrize("side", [0, 1])
def test_invalid_utf8_error_has_the_line(side: int, tmp_path: Path) -> None:
    contents = [b"a\nb\n", b"a\nb\n"]
    contents[side] = b"a\n\xff\n"
    paths = files(tmp_path, *contents)
    with pytest.raises(ValueError, match=rf"{paths[side].name}, line 2: .*\\xff"):
        list(read_pairs(*paths))
    with pytest.raises(ValueError, match="line 2"):
        list(read_lines(paths[side]))


def test_marks_come_first_and_are_not_words() -> None:
    vocabulary = Vocabulary(MARKS, ["b", "a"])
    assert len(vocabulary) == 4
    assert list(vocabulary.ids(["a", "b", "c", "<pad>", "<unk>"])) == [3, 2, 1, 1, 1]
    assert vocabulary.words([0, 1, 2, 3]) == ["<pad>", "<unk>", "b", "a"]


def test_vocabulary_file_keeps_its_order(tmp_path: Path) -> None:
    file = tmp_path / "dict.txt"
    file.write_bytes("the 9\n@@ 8\n7\nn\u00a0b 1\n".encode())
    assert read_words(file, MARKS).entries == (*MARKS, "the", "@@", "7", "n\u00a0b")


@pytest.mark.parametrize("line", ["", "a b", "<pad> 1"])
def test_malformed_vocabulary_error_has_the_line(line: str, tmp_path: Path) -> None:
    file = tmp_path / "dict.txt"
    file.write_text(f"the 9\n{line}\nb 2\n")
    with pytest.raises(ValueError, match=r"dict\.txt, line 2: ") as caught:
        read_words(file, MARKS)
    assert repr(line + "\n") in str(caught.value)


def test_repeated_word_error_has_both_lines(tmp_path: Path) -> None:
    file = tmp_path / "dict.txt"
    file.write_text("the 9\na 8\nthe 7\n")
    with pytest.raises(ValueError, match=r"line 3: .*'the' of line 1"):
        read_words(file, MARKS)


@given(st.lists(st.lists(st.integers(0, 255), max_size=5), min_size=1, max_size=9))
def test_rows_equal_the_appended_examples(examples: list[list[int]]) -> None:
    rows = Rows(256)
    for example in examples:
        rows.append(iter(example))
    assert len(rows) == len(examples)
    assert rows.column().to_pylist() == examples


@pytest.mark.parametrize(
    ("size", "kind"), [(256, "uint8"), (257, "uint16"), (65536, "uint16"), (65537, "uint32")]
)
def test_ids_have_the_smallest_sufficient_type(size: int, kind: str) -> None:
    rows = Rows(size)
    rows.append([0, size - 1])
    values = np.asarray(rows.column().values)
    assert (values.dtype, values.tolist()) == (kind, [0, size - 1])


def test_byte_order_mark_is_not_part_of_the_first_word(tmp_path: Path) -> None:
    mark = "\ufeff".encode()
    source_file, target_file = files(tmp_path, mark + b"a b\nc\n", mark + b"x\n" + mark + b"y\n")
    assert [words for _, *words in read_pairs(source_file, target_file)] == [
        [["a", "b"], ["x"]],
        [["c"], ["\ufeffy"]],
    ]
    source_file.write_bytes(mark + b"the\nof\n")
    assert read_words(source_file, MARKS).entries == (*MARKS, "the", "of")


def test_unequal_line_counts_are_reported(tmp_path: Path) -> None:
    source_file, target_file = files(tmp_path, b"a\nb\nc\n", b"a\n")
    with pytest.raises(ValueError, match=r"some text.de .* 3 and 1"):
        list(read_pairs(source_file, target_file))
