"""Read pairs of formulas and their relation from the published files of the logical inference task.

A line is a relation, a tab, a sentence, a tab, a sentence; the words of a sentence are separated by spaces.
"""

from pathlib import Path

import numpy as np

from trainables.data.files import source_folder, unreadable_error
from trainables.data.ragged import row_offsets
from trainables.generators.formula_pairs import BUCKETS, RELATIONS, SEPARATOR, Pairs
from trainables.generators.formulas import WORDS


def read_formula_pairs(folder: Path, part: str) -> tuple[Pairs, ...]:
    """Return the pairs of each file `<part>0` .. `<part>12`. Raises `ValueError` with file and line."""
    return tuple(_read_file(file) for file in files(folder, part))


def files(folder: Path, part: str) -> list[Path]:
    """Return the paths `<part>0` .. `<part>12`. Raises `ValueError` for missing files."""
    names = [f"{part}{number}" for number in range(BUCKETS)]
    content = "the files train0 .. train12 and test0 .. test12 (lines of relation, sentence and sentence)"
    source_folder(folder, names, content, ", or leave folder out to generate the data")
    return [folder / name for name in names]


def _read_file(file: Path) -> Pairs:
    ids = {word: index for index, word in enumerate(WORDS)}
    rows: list[list[int]] = []
    labels: list[int] = []
    try:
        text = file.read_text("utf-8-sig", "replace")
    except OSError as error:
        raise unreadable_error(file, error) from error
    for line_number, line in enumerate(text.splitlines(), start=1):
        parts = line.split("\t")
        words = [part.split() for part in parts[1:]]
        unknown_words = sorted({word for sentence in words for word in sentence} - ids.keys())
        if len(parts) != 3 or parts[0] not in RELATIONS or unknown_words or not all(words):
            raise ValueError(
                f"{file}, line {line_number}: expected a relation ({' '.join(RELATIONS)}) and two "
                f"sentences of the words {' '.join(WORDS)}, with tabs between the three, got {line[:200]!r}"
            )
        rows.append([*map(ids.__getitem__, words[0]), SEPARATOR, *map(ids.__getitem__, words[1])])
        labels.append(RELATIONS.index(parts[0]))
    if not rows:
        raise ValueError(f"{file} must contain one pair per line, got no pair; put the pairs there")
    flat = [token for row in rows for token in row]
    lengths = np.asarray([len(row) for row in rows], dtype=np.int64)
    return Pairs(np.asarray(flat, dtype=np.uint8), row_offsets(lengths), np.asarray(labels, dtype=np.int16))
