"""Read parallel text: two files of equal line count, one sentence per line, words separated by spaces.

Files are read line by line, so that millions of sentences need only the memory of their ids.
"""

import logging
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pyarrow as pa

from trainables.data.files import unreadable_error
from trainables.data.progress import REPORT_INTERVAL, report
from trainables.data.ragged import list_column

PADDING, END, UNKNOWN = "<pad>", "</s>", "<unk>"
"""Special entries: ids without a word. Literal occurrences in a text count as unknown words."""
LOG = logging.getLogger(__name__)
UNKNOWN_SHARE_WARNED = 0.01
"""Share of unknown words in a file above which a warning is logged."""
_TYPES = (("B", 1 << 8), ("H", 1 << 16), ("I", 1 << 32))


class _Ids(dict[str, int]):
    """Ids of words, with the same id for all unknown words."""

    def __init__(self, ids: Iterable[tuple[str, int]], unknown: int) -> None:
        super().__init__(ids)
        self._unknown = unknown

    def __missing__(self, word: str) -> int:
        return self._unknown


class Vocabulary:
    """Words and their ids: first the special entries, including `UNKNOWN`, then the words in their order."""

    def __init__(self, special_entries: Sequence[str], words: Iterable[str]) -> None:
        self.entries = (*special_entries, *words)
        """Entries by id."""
        numbered = ((word, index) for index, word in enumerate(self.entries) if index >= len(special_entries))
        self._ids = _Ids(numbered, self.entries.index(UNKNOWN))

    def __len__(self) -> int:
        return len(self.entries)

    def ids(self, words: Iterable[str]) -> Iterator[int]:
        """Return an iterator over the id of each word."""
        return map(self._ids.__getitem__, words)

    def words(self, ids: Iterable[int]) -> list[str]:
        """Return the word or special entry of each id."""
        return [self.entries[index] for index in ids]


class Rows:
    """Rows of ids in one flat array, to which rows are appended."""

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
        """Return all rows as a table column that shares their memory; no row can be appended afterwards."""
        values, offsets = (np.frombuffer(part, dtype=part.typecode) for part in (self._values, self._offsets))
        return list_column(offsets, values)


def read_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line number and text of every line. Raises `ValueError` for unreadable files and invalid text."""
    try:
        with file.open("rb") as lines:
            for line_number, line in enumerate(lines, start=1):
                yield line_number, _text(line, file, line_number)
    except OSError as error:
        raise unreadable_error(file, error) from error


def read_pairs(source: Path, target: Path) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield line number, source words and target words of every line.

    Raises:
        ValueError: A file is unreadable or no valid text, or the line counts differ (after all pairs).
    """
    try:
        yield from _pairs(source, target)
    except OSError as error:
        raise unreadable_error(Path(error.filename or source), error) from error


def _pairs(source: Path, target: Path) -> Iterator[tuple[int, list[str], list[str]]]:
    size = source.stat().st_size + target.stat().st_size
    with source.open("rb") as sources, target.open("rb") as targets:
        for line_number, (source_line, target_line) in enumerate(zip_longest(sources, targets), start=1):
            if line_number % REPORT_INTERVAL == 0:
                report("bytes", sources.tell() + targets.tell(), size)
            if source_line is None or target_line is None:
                num_lines = line_number + sum(1 for _ in (targets if source_line is None else sources))
                num_complete = line_number - 1
                counts = (num_complete, num_lines) if source_line is None else (num_lines, num_complete)
                raise ValueError(
                    f"{source} and {target.name} must have as many lines, since their numbers pair them, "
                    f"got {counts[0]} and {counts[1]}"
                )
            yield (
                line_number,
                _text(source_line, source, line_number).split(),
                _text(target_line, target, line_number).split(),
            )


def read_words(file: Path, special_entries: Sequence[str]) -> Vocabulary:
    """Return the vocabulary of a file with one word per line, or with word and count as in fairseq.

    Raises:
        ValueError: A line has another form, a word occurs twice or is a special entry, or there are no words.
    """
    line_of_word: dict[str, int] = {}
    for line_number, line in read_lines(file):
        word, *count = line.rstrip("\r\n").split(" ")
        if (
            not word
            or word in special_entries
            or len(count) > 1
            or not all(digits.isdecimal() for digits in count)
        ):
            raise ValueError(
                f"{file}, line {line_number}: expected a word or a word and its count, without "
                f"{' '.join(special_entries)}, got {line[:200]!r}"
            )
        if word in line_of_word:
            raise ValueError(
                f"{file}, line {line_number}: expected each word once, got {word!r} of line "
                f"{line_of_word[word]} again"
            )
        line_of_word[word] = line_number
    if not line_of_word:
        raise ValueError(f"{file} must contain one word per line, got no word; put the vocabulary there")
    return Vocabulary(special_entries, line_of_word)


def warn_unknown(file: Path, column: pa.LargeListArray, unknown: int) -> None:
    """Log a warning if many words of a file have the id `unknown`."""
    ids = np.asarray(column.values)
    count = int(np.count_nonzero(ids == unknown))
    if count > UNKNOWN_SHARE_WARNED * len(ids):
        LOG.warning(
            "%s: %s of %s words are not in the vocabulary and are read as %s; check that the vocabulary "
            "belongs to these files",
            *(file, f"{count:,}", f"{len(ids):,}", UNKNOWN),
        )


def _text(line: bytes, file: Path, line_number: int) -> str:
    """Decode a line as UTF-8; remove a byte order mark from the first line of a file."""
    try:
        return line.decode("utf-8-sig" if line_number == 1 else "utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{file}, line {line_number}: expected UTF-8 text, got {line[:200]!r}") from None
