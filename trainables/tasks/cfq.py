"""Compositional Freebase Questions: translate an English question into its SPARQL query.

Keysers et al. 2020, "Measuring Compositional Generalization". In the splits MCD1, MCD2 and MCD3 the parts of
questions are as frequent in training as in the test, but in other compounds. The task reads files. Queries
can be shortened as in Tan et al., "Sparse Universal Transformer", sec. 4.2.

    <folder>/MCD1/train.src   questions, one per line, words and marks separated by spaces
                  train.tgt   their queries, line by line
                  dev.src  dev.tgt  test.src  test.tgt
                  vocab.src  vocab.tgt   optional: the words in the order of their ids, one per line
    <folder>/MCD2/..., <folder>/MCD3/...   each needed only for its `division`

Without vocabulary files, the vocabulary consists of the words of the training files, most common first, ties
by code point. Every question ends with `</s>`, as in fairseq, with which the published systems were trained.

Departures: the vocabulary of the published systems is not documented. Here questions and queries have
separate vocabularies.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field

from trainables.data.files import content_digest, source_folder
from trainables.field_effects import AffectsSplits
from trainables.readers.parallel_text import (
    END,
    PADDING,
    UNKNOWN,
    Rows,
    Vocabulary,
    read_lines,
    read_pairs,
    read_words,
    warn_unknown,
)
from trainables.readers.sparql import NotAQuery, simplify
from trainables.settings import Settings
from trainables.task_protocol import SplitInfo, train_valid_test
from trainables.types import TaskShape

VERSION = 1
SOURCE_MARKS, TARGET_MARKS = (PADDING, END, UNKNOWN), (END, UNKNOWN)
PARTS = {"train": "train", "valid": "dev", "test": "test"}
"""Name of the files of each split."""
INVERTED = ("MCD2", "MCD3")
"""Divisions whose shortened queries replace some relations by their inverse."""


class Config(Settings):
    """Settings of the task. The defaults are the first published split with unchanged queries."""

    name: Literal["cfq"] = "cfq"
    folder: str | None = None
    """Folder that holds the folders MCD1, MCD2 and MCD3. Needed for training; a spec can be planned without
    files if both vocabulary sizes are given."""
    division: Literal["MCD1", "MCD2", "MCD3"] = "MCD1"
    """Published division into training, validation and test data."""
    simplify: bool = False
    """Write common parts of the clauses of a query only once, as in the training of the published models. The
    files then contain unchanged queries, except for `ns:` at the beginning of words."""
    source_vocabulary_size: Annotated[int | None, AffectsSplits()] = Field(
        default=None, ge=len(SOURCE_MARKS) + 1
    )
    """Number of ids of question words, including 3 marks. The vocabulary must contain all words of the files.
    By default the number is the size of the vocabulary."""
    target_vocabulary_size: Annotated[int | None, AffectsSplits()] = Field(
        default=None, ge=len(TARGET_MARKS) + 1
    )
    """Number of ids of query words, including 2 marks. The vocabulary must contain all words of the files. By
    default the number is the size of the vocabulary."""
    question_words_max: Annotated[int, AffectsSplits()] = Field(default=64, ge=1)
    """Maximum number of words of a question in the files."""
    query_words_max: Annotated[int, AffectsSplits()] = Field(default=256, ge=1)
    """Maximum number of words of a query in the files, after `simplify`."""


def shape(config: Config) -> TaskShape:
    """Return a shape for queries as answers.

    Reads the vocabulary unless both sizes are given.

    Raises:
        ValueError: The vocabulary cannot be read, or does not fit into a given size.
    """
    sizes = config.source_vocabulary_size, config.target_vocabulary_size
    return TaskShape(
        head="sequence",
        vocabulary_size=sizes[0] or len(_vocabulary(config, "src")),
        num_classes=sizes[1] or len(_vocabulary(config, "tgt")),
        pad_id=SOURCE_MARKS.index(PADDING),
        length_max=config.question_words_max + 1,
        end_id=TARGET_MARKS.index(END),
        answer_length_max=config.query_words_max + 1,
    )


def label_names(config: Config) -> tuple[str, ...]:
    """Return the name of each answer token: special entries, then the words of queries."""
    return _vocabulary(config, "tgt").entries


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """Return train, valid and test."""
    return train_valid_test(2, config.question_words_max + 1)


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens` and `answer`. Raises `ValueError` for a bad file."""
    files = _files(config)
    words = _vocabulary(config, "src"), _vocabulary(config, "tgt")
    _check_vocabulary_size("source_vocabulary_size", config.source_vocabulary_size, words[0])
    _check_vocabulary_size("target_vocabulary_size", config.target_vocabulary_size, words[1])
    questions, queries = (Rows(len(vocabulary)) for vocabulary in words)
    source, target = (files[f"{PARTS[split]}.{suffix}"] for suffix in ("src", "tgt"))
    for line_number, question, query in read_pairs(source, target):
        answer = _target_words(config, query, target, line_number)
        _check_num_words("question_words_max", config.question_words_max, question, source, line_number)
        _check_num_words("query_words_max", config.query_words_max, answer, target, line_number)
        questions.append([*words[0].ids(question), SOURCE_MARKS.index(END)])
        queries.append(words[1].ids(answer))
    if not len(questions):
        raise ValueError(f"{source} must contain one question per line, got no question; put them there")
    tokens, answers = questions.column(), queries.column()
    warn_unknown(source, tokens, SOURCE_MARKS.index(UNKNOWN))
    warn_unknown(target, answers, TARGET_MARKS.index(UNKNOWN))
    return pa.table({"tokens": tokens, "answer": answers})


def require_files(config: Config) -> None:
    """Raise `ValueError` if the files are missing, without reading them."""
    _files(config)


def source_digest(config: Config) -> str:
    """Return a digest of the files of the chosen MCD split. Raises `ValueError` for missing files."""
    files = _files(config)
    return content_digest(files["train.src"].parent, files)


def decode(tokens: Sequence[int], config: Config) -> str:
    """Return readable text, e.g. `Who wrote M1 and wrote a film </s>`."""
    return " ".join(_vocabulary(config, "src").words(tokens))


def score(
    config: Config,  # noqa: ARG001 the same for all settings
    hypotheses: Sequence[Sequence[int]],
    references: Sequence[Sequence[int]],
) -> Mapping[str, float]:
    """Return `exact_match`, the share of queries that match word for word. Ids exclude the end token.

    A word that the vocabulary lacks never counts as correct.
    """
    unknown_id = TARGET_MARKS.index(UNKNOWN)
    hits = (
        list(hypothesis) == list(reference) and unknown_id not in reference
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    return {"exact_match": sum(hits) / len(references)}


def _files(config: Config) -> dict[str, Path]:
    """Map file names to the files of the chosen MCD split. Raises `ValueError` for missing files."""
    names = [f"{part}.{suffix}" for part in PARTS.values() for suffix in ("src", "tgt")]
    folder = source_folder(
        config.folder,
        [f"{config.division}/{name}" for name in names],
        f"{config.division}/ with {', '.join(names)} (questions and queries, one per line)",
        ", or give source_vocabulary_size and target_vocabulary_size to plan without the files",
    )
    optional = ("vocab.src", "vocab.tgt")
    files = {name: folder / config.division / name for name in (*names, *optional)}
    return {name: file for name, file in files.items() if name in names or file.is_file()}


def _vocabulary(config: Config, suffix: Literal["src", "tgt"]) -> Vocabulary:
    """Return the vocabulary of questions (`src`) or queries (`tgt`). Raises `ValueError` for a bad file."""
    files = _files(config)
    file = files.get(f"vocab.{suffix}", files[f"train.{suffix}"])
    shorten = config.simplify and suffix == "tgt"
    state = file.stat()
    return _read_vocabulary(config, suffix, file, shorten, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=4)
def _read_vocabulary(
    config: Config,
    suffix: str,
    file: Path,
    shorten: bool,
    state: tuple[int, int],  # noqa: ARG001 part of the key
) -> Vocabulary:
    marks = SOURCE_MARKS if suffix == "src" else TARGET_MARKS
    if file.name.startswith("vocab"):
        return read_words(file, marks)
    counts: Counter[str] = Counter()
    for line_number, line in read_lines(file):
        counts.update(_target_words(config, line.split(), file, line_number) if shorten else line.split())
    return Vocabulary(marks, sorted(counts, key=lambda word: (-counts[word], word)))


def _target_words(config: Config, query: list[str], file: Path, line_number: int) -> list[str]:
    """Return the query in the form that models learn: shortened if `config.simplify`."""
    if not config.simplify:
        return query
    try:
        return simplify(query, invert=config.division in INVERTED)
    except NotAQuery as fault:
        raise ValueError(
            f"{file}, line {line_number}: expected {fault}, got {' '.join(query)[:200]!r}; omit simplify for "
            "queries that are already shorter"
        ) from None


def _check_vocabulary_size(field: str, size: int | None, words: Vocabulary) -> None:
    if size is not None and size < len(words):
        raise ValueError(f"{field} must be at least {len(words)} to hold all words and marks, got {size}")


def _check_num_words(field: str, limit: int, words: Sequence[str], file: Path, line_number: int) -> None:
    if not 0 < len(words) <= limit:
        raise ValueError(
            f"{file}, line {line_number}: expected 1 to {limit} words ({field}), got {len(words)}; correct "
            f"it or set another {field}"
        )
