"""Retrieval of Long Range Arena: decide whether one paper, read byte by byte, cites the other.

Tay et al. 2021, "Long Range Arena", on the ACL Anthology Network of Radev et al. 2013. The task reads files:

    <folder>/new_aan_pairs.train.tsv   one pair per line, in five columns separated by tabs:
    <folder>/new_aan_pairs.eval.tsv    label (0.0 or 1.0), names of both papers, texts of both papers
    <folder>/new_aan_pairs.test.tsv

Quotation marks are ordinary letters, as in Long Range Arena. In the runs of Ray Chowdhury and Caragea a text
in quotation marks can contain tabs and line breaks, as in Python's csv, which joins some pairs into one.
`quotes: fields` reads files in this way and skips rows that are then not a pair. Pairs with an empty text are
skipped.
"""

import csv
import logging
import sys
from array import array
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from trainables.data.files import content_digest, source_folder, unreadable_error
from trainables.data.progress import report
from trainables.field_effects import AffectsForm
from trainables.readers.byte_text import (
    IDS,
    PAD,
    SEPARATOR,
    decode,  # noqa: F401 required in every task
    ids,
)
from trainables.readers.parallel_text import Rows
from trainables.settings import Settings
from trainables.task_protocol import SplitInfo, train_valid_test
from trainables.types import TaskShape

LOG = logging.getLogger(__name__)
VERSION = 1
FILES = {
    name: f"new_aan_pairs.{part}.tsv"
    for name, part in zip(("train", "valid", "test"), ("train", "eval", "test"), strict=True)
}
LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}
COLUMNS = 5
PROGRESS_INTERVAL = 1000


class Config(Settings):
    """The defaults are the task of Ray Chowdhury and Caragea."""

    name: Literal["lra_retrieval"] = "lra_retrieval"
    folder: str | None = None
    """Folder that holds the three files. Needed for training; a spec can be planned without it."""
    length_max: Annotated[int, AffectsForm()] = Field(default=4096, ge=1, le=65536)
    """Maximum number of bytes read from each text; Tay et al. read 4000."""
    quotes: Literal["letters", "fields"] = "letters"
    """Meaning of quotation marks in the files. `letters`: quotation marks are ordinary letters. `fields`: a
    text that begins with a quotation mark ends at the next one, across tabs and lines, and is read without
    both."""


def shape(config: Config) -> TaskShape:
    """Return a shape with two classes of pairs of byte strings."""
    return TaskShape(
        head="pair",
        vocabulary_size=IDS + 1,
        num_classes=2,
        pad_id=PAD,
        length_max=2 * config.length_max + 1,
        separator_id=SEPARATOR,
    )


def label_names(config: Config) -> tuple[str, ...]:  # noqa: ARG001 the same for all settings
    """Return the names of the classes: `together` if one paper cites the other."""
    return ("apart", "together")


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """Return train, valid and test."""
    return train_valid_test(3, 2 * config.length_max + 1)


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens` (uint16) and `label`. Raises `ValueError` for a bad file."""
    file = _folder(config) / FILES[split]
    rows, labels, num_empty = Rows(IDS + 1), array("h"), 0
    pairs = _pairs(file) if config.quotes == "letters" else _quoted_pairs(file)
    for label, first_text, second in pairs:
        if not first_text or not second:
            num_empty += 1
            continue
        pair = ids(first_text[: config.length_max])
        pair.append(SEPARATOR)
        pair.extend(ids(second[: config.length_max]))
        rows.append(pair)
        labels.append(label)
    if num_empty:
        LOG.warning(
            "%s: %d of %d pairs have an empty text and are left out", file, num_empty, num_empty + len(labels)
        )
    if not labels:
        raise ValueError(f"{file} must contain one pair per line, got no pair; put the pairs there")
    return pa.table({"tokens": rows.column(), "label": pa.array(np.frombuffer(labels, dtype=np.int16))})


def require_files(config: Config) -> None:
    """Raise `ValueError` if the files are missing, without reading them."""
    _folder(config)


def source_digest(config: Config) -> str:
    """Return a digest of the contents of the three files. Raises `ValueError` for missing files."""
    return content_digest(_folder(config), FILES.values())


def _folder(config: Config) -> Path:
    """Return the folder of pairs. Raises `ValueError` if it is incomplete."""
    names = FILES.values()
    return source_folder(config.folder, names, f"{', '.join(names)} (the published AAN pairs)")


def _pairs(file: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield label, first text and second text of each line. Raises `ValueError` with file and line."""
    for line_number, line in _lines(file):
        columns = line.rstrip(b"\r\n").split(b"\t")
        if len(columns) != COLUMNS or columns[0] not in LABELS:
            shown_line = line[:200].decode("utf-8", "backslashreplace")
            raise ValueError(
                f"{file}, line {line_number}: expected a label (0.0 or 1.0), two names and two texts, "
                f"with tabs between the five, got {len(columns)} columns in {shown_line!r}"
            )
        yield LABELS[columns[0]], columns[3], columns[4]


def _quoted_pairs(file: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield label and texts of each row, with quoted fields; log the number of rows that are not pairs."""
    limit = csv.field_size_limit(sys.maxsize)
    rows, num_unquoted = 0, 0
    try:
        # Map each byte to the character with its number, and back.
        lines = (line.decode("latin-1") for _, line in _lines(file))
        for columns in csv.reader(lines, delimiter="\t"):
            rows += 1
            label = LABELS.get(columns[0].encode("latin-1")) if len(columns) == COLUMNS else None
            if label is None:
                num_unquoted += 1
            else:
                yield label, columns[3].encode("latin-1"), columns[4].encode("latin-1")
    except csv.Error as error:
        raise ValueError(
            f"{file}, row {rows + 1}: expected columns with tabs between them, got {error}; read it with "
            "quotes='letters'"
        ) from error
    finally:
        csv.field_size_limit(limit)
    if num_unquoted:
        LOG.warning("%s: %d of %d rows are no pairs and left out: quotes='fields'", file, num_unquoted, rows)


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield line number and bytes of each line, without a byte order mark.

    Raises:
        ValueError: The file cannot be read.
    """
    try:
        with file.open("rb") as lines:
            size, bytes_read = file.stat().st_size, 0
            for line_number, line in enumerate(lines, start=1):
                bytes_read += len(line)
                if line_number % PROGRESS_INTERVAL == 0:
                    report("bytes", bytes_read, size)
                yield line_number, line.removeprefix(BOM_UTF8) if line_number == 1 else line
    except OSError as error:
        raise unreadable_error(file, error) from error
