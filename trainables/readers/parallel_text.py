"""Parallel text: two files of as many lines, a sentence a line, its words separated by spaces.

Files are read line by line: millions of sentences need no more memory than their ids.
"""

import logging
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pyarrow as pa

from trainables.data.files import unreadable
from trainables.data.progress import COUNTED_AT_ONCE, report

PADDING, END, UNKNOWN = "<pad>", "</s>", "<unk>"
"""Marks: ids without a word. A text that holds one of these literally has an unknown word there."""
LOG = logging.getLogger(__name__)
UNKNOWN_SHARE_WARNED = 0.01
"""Share of unknown words in a file above which a warning is logged."""
_TYPES = (("B", 1 << 8), ("H", 1 << 16), ("I", 1 << 32))


class _Ids(dict[str, int]):
    """Ids of words, one and the same for all that are not in it."""

    def __init__(self, ids: Iterable[tuple[str, int]], unknown: int) -> None:
        super().__init__(ids)
        self._unknown = unknown

    def __missing__(self, word: str) -> int:
        return self._unknown


class Vocabulary:
    """Words and their ids: first the marks, `UNKNOWN` among them, then the words in their order."""

    def __init__(self, marks: Sequence[str], words: Iterable[str]) -> None:
        self.entries = (*marks, *words)
        """Ids are positions in this list."""
        numbered = ((word, index) for index, word in enumerate(self.entries) if index >= len(marks))
        self._ids = _Ids(numbered, self.entries.index(UNKNOWN))

    def __len__(self) -> int:
        return len(self.entries)

    def ids(self, words: Iterable[str]) -> Iterator[int]:
        """The id of each word."""
        return map(self._ids.__getitem__, words)

    def words(self, ids: Iterable[int]) -> list[str]:
        """The entry of each id."""
        return [self.entries[index] for index in ids]


class Rows:
    """Rows of ids, each at the end of one flat array as it comes."""

    def __init__(self, vocabulary_size: int) -> None:
        self._values = array(next(code for code, size in _TYPES if vocabulary_size <= size))
        self._offsets = array("q", [0])

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def append(self, ids: Iterable[int]) -> None:
        """Add a row."""
        self._values.extend(ids)
        self._offsets.append(len(self._values))

    def column(self) -> pa.LargeListArray:
        """All rows as a column of a split, nothing copied; none can be added any more."""
        values, offsets = (np.frombuffer(part, dtype=part.typecode) for part in (self._values, self._offsets))
        return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))


def read_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Number and text of every line. Raises `ValueError` for bytes that are no text or cannot be read."""
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                yield number, _text(line, file, number)
    except OSError as error:
        raise unreadable(file, error) from error


def read_pairs(source: Path, target: Path) -> Iterator[tuple[int, list[str], list[str]]]:
    """Number, source words and target words of every line.

    Raises `ValueError` for bytes that are no text or cannot be read and, having read all that pairs, for
    unequal line counts.
    """
    try:
        yield from _pairs(source, target)
    except OSError as error:
        raise unreadable(Path(error.filename or source), error) from error


def _pairs(source: Path, target: Path) -> Iterator[tuple[int, list[str], list[str]]]:
    size = source.stat().st_size + target.stat().st_size
    with source.open("rb") as sources, target.open("rb") as targets:
        for number, (one, other) in enumerate(zip_longest(sources, targets), start=1):
            if number % COUNTED_AT_ONCE == 0:
                report("bytes", sources.tell() + targets.tell(), size)
            if one is None or other is None:
                longer = number + sum(1 for _ in (targets if one is None else sources))
                counts = (number - 1, longer) if one is None else (longer, number - 1)
                raise ValueError(
                    f"{source} and {target.name} must have as many lines, since their numbers pair them, "
                    f"got {counts[0]} and {counts[1]}"
                )
            yield number, _text(one, source, number).split(), _text(other, target, number).split()


def read_words(file: Path, marks: Sequence[str]) -> Vocabulary:
    """A vocabulary file: in each line a word, or as fairseq writes them a word and its count.

    Raises `ValueError` for another line, a word that occurs twice, one that is a mark, and none at all.
    """
    seen: dict[str, int] = {}
    for number, line in read_lines(file):
        word, *count = line.rstrip("\r\n").split(" ")
        if not word or word in marks or len(count) > 1 or not all(each.isdecimal() for each in count):
            raise ValueError(
                f"{file}, line {number}: expected a word or a word and its count, without "
                f"{' '.join(marks)}, got {line[:200]!r}"
            )
        if word in seen:
            raise ValueError(
                f"{file}, line {number}: expected each word once, got {word!r} of line {seen[word]} again"
            )
        seen[word] = number
    if not seen:
        raise ValueError(f"{file} must hold a word a line, got an empty file; put the vocabulary there")
    return Vocabulary(marks, seen)


def warn_unknown(file: Path, column: pa.LargeListArray, unknown: int) -> None:
    """Log how many words of a file have the id `unknown`, if they are many: a vocabulary of other text."""
    ids = np.asarray(column.values)
    count = int(np.count_nonzero(ids == unknown))
    if count > UNKNOWN_SHARE_WARNED * len(ids):
        LOG.warning(
            "%s: %s of %s words are not in the vocabulary and are all read as %s; is it that of these files?",
            *(file, f"{count:,}", f"{len(ids):,}", UNKNOWN),
        )


def missing(files: Iterable[Path]) -> str:
    """The names of those that are not there, empty if none."""
    return ", ".join(file.name for file in files if not file.is_file())


def _text(line: bytes, file: Path, number: int) -> str:
    """The text of a line. Some editors begin a file with a mark of its encoding, which is no text."""
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{file}, line {number}: expected UTF-8 text, got {line[:200]!r}") from None
