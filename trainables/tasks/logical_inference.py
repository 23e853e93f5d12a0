"""Logical inference: classify the relation between two propositional formulas.

Formulas and relations: Bowman, Manning and Potts 2015, "Tree-Structured Composition in Neural Networks
without Tree-Structured Architectures". Training uses pairs of at most 6 operators and tests are grouped by
number of operators, as in that paper and in Ray Chowdhury and Caragea, "Investigating Recurrent Transformers
with Dynamic Halt". Splits A, B and C, which hold out a pattern: Shen et al. 2019, "Ordered Memory".

The most common relation, `#`, holds for half of the pairs. Always predicting it scores 51, 52, 51, 51, 51 and
48% on 7 to 12 operators, which are the published figures of some systems.

In the form `sequence` (Tan et al., Sparse Universal Transformer) the input is the same, both sentences with
the separator between them. The answer is generated: the single token of its label.

Departures: the published pairs cannot be reproduced bit for bit, so the pairs here are other draws from the
same distribution, unless `folder` names the original files.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from trainables.data.files import content_digest
from trainables.data.ragged import concatenate, list_column
from trainables.field_effects import AffectsForm
from trainables.generators.formula_pairs import (
    BUCKETS,
    RELATIONS,
    SEPARATOR,
    Pairs,
    generate_pairs,
    has_pattern,
    unique_pairs,
)
from trainables.generators.formulas import OPERATORS_MAX, WORDS, longest, shortest
from trainables.readers.formula_pair_files import files, read_formula_pairs
from trainables.settings import Settings
from trainables.task_protocol import SplitInfo
from trainables.types import TaskShape

VERSION = 2
TRAINING_ONLY = frozenset({"pairs"})
VOCABULARY = (*WORDS, "<sep>", "<pad>")
"""Words by token id."""
ANSWERS = (*RELATIONS, "<end>")
"""Words by id of answer token, for the form `sequence`."""
PAD = VOCABULARY.index("<pad>")
TRAIN_OPERATORS_MAX = 6
VALID_EVERY = 10
"""Period of validation pairs in the pool: every tenth pair, as in the released code of both papers."""
HELD_OUT = "held-out"


class Config(Settings):
    """The defaults are the published task."""

    name: Literal["logical_inference"] = "logical_inference"
    pairs: int = Field(default=500_000, ge=10_000, le=5_000_000)
    """Number of pairs drawn for training. About half of them remain after repeated pairs and pairs of other
    splits are removed."""
    test_pairs: int = Field(default=500_000, ge=10_000, le=5_000_000)
    """Number of pairs drawn for the other splits. After repeated pairs are removed, the tests get 15% of the
    pairs of each length, and the valid split gets a tenth of the rest."""
    held_out: Literal["A", "B", "C"] | None = None
    """Pattern whose pairs are not trained on but form the test split `held-out`. A: `( and ( not a ) )`.
    B: `( and ( not <anything> ) )`. C: the pattern B after `and` or `or`."""
    folder: str | None = None
    """Folder of the original files train0 .. train12 and test0 .. test12, which are read instead of generated
    pairs."""
    form: Annotated[Literal["pair", "sequence"], AffectsForm()] = "pair"
    """`pair`: the model classifies a pair of sentences. `sequence`: the model reads both sentences as one
    sequence with a separator and writes the label as an answer."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of the generated pairs, independent of training seeds: trials with different training seeds share
    one data set."""


def settled(config: Config) -> Config:
    """Return settings in which unused numbers of pairs and seeds have their defaults."""
    generated = (
        {}
        if config.folder is None
        else {
            "pairs": Config().pairs,
            "test_pairs": Config().test_pairs,
            "data_seed": 0,
        }
    )
    return config.model_copy(update=generated)


def shape(config: Config) -> TaskShape:
    """Return a shape with seven classes of pairs over 11 words, or with seven answers and their end token."""
    if config.form == "sequence":
        return TaskShape(
            head="sequence",
            vocabulary_size=len(VOCABULARY),
            num_classes=len(ANSWERS),
            pad_id=PAD,
            length_max=2 * longest(TRAIN_OPERATORS_MAX) + 1,
            end_id=ANSWERS.index("<end>"),
            answer_length_max=2,
        )
    return TaskShape(
        head="pair",
        vocabulary_size=len(VOCABULARY),
        num_classes=len(RELATIONS),
        pad_id=PAD,
        length_max=2 * longest(TRAIN_OPERATORS_MAX) + 1,
        separator_id=SEPARATOR,
    )


def label_names(config: Config) -> tuple[str, ...]:  # noqa: ARG001 the same for all settings
    """Return the name of each relation: its sign in the published files, and its meaning."""
    words = ("independent", "equivalent", "entails", "is entailed", "negation", "alternation", "cover")
    return tuple(f"{sign} {word}" for sign, word in zip(RELATIONS, words, strict=True))


def token_classes(config: Config) -> tuple[str, ...]:  # noqa: ARG001 the same for all settings
    """Return the class of each token: operator, bracket, variable, or other."""
    class_names = {"and": "operator", "or": "operator", "not": "operator", "(": "bracket", ")": "bracket"}
    return tuple(class_names.get(word, "other" if word[0] == "<" else "variable") for word in VOCABULARY)


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """Return train, valid, held-out if configured, and operators-0 .. operators-12 (12 or more)."""
    pool = 3, 2 * longest(TRAIN_OPERATORS_MAX) + 1
    held_out = () if config.held_out is None else (SplitInfo(HELD_OUT, "test", *pool, None),)
    tests = (
        SplitInfo(f"operators-{number}", "test", *_length_range(number), None) for number in range(BUCKETS)
    )
    return (
        SplitInfo("train", "train", *pool, None),
        SplitInfo("valid", "valid", *pool, None),
        *held_out,
        *tests,
    )


def _length_range(bucket: int) -> tuple[int, int]:
    """Return the least and greatest tokens of a pair in which the longer sentence has `bucket` operators."""
    operators_max = OPERATORS_MAX if bucket == BUCKETS - 1 else bucket
    return shortest(bucket) + 2, 2 * longest(operators_max) + 1


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens` (uint8) and `label` or `answer`. Raises `ValueError` for a bad folder."""
    return _table(_pairs(config, split), config.form)


def _pairs(config: Config, split: str) -> Pairs:
    if split.startswith("operators-"):
        return _parts(config, "test")[int(split.removeprefix("operators-"))]
    pool = _pool(_parts(config, "train"))
    if split == HELD_OUT:
        assert config.held_out is not None, "a split of held-out pairs needs a pattern"
        return pool.take(np.flatnonzero(has_pattern(pool, config.held_out)))
    pool = _without_pattern(pool, config.held_out)
    is_valid = np.arange(1, len(pool) + 1) % VALID_EVERY == 0
    valid = pool.take(np.flatnonzero(is_valid))
    if split == "valid":
        return valid
    if config.folder is not None:
        return pool.take(np.flatnonzero(~is_valid))
    evaluated_rows = {*valid.rows(), *_pool(_parts(config, "test")).rows()}
    candidates = _without_pattern(_pool(unique_pairs(config.pairs, config.data_seed)), config.held_out)
    return candidates.take(np.flatnonzero([row not in evaluated_rows for row in candidates.rows()]))


def _pool(buckets: Sequence[Pairs]) -> Pairs:
    """Return all pairs that have few enough operators for training."""
    return concatenate(list(buckets[: TRAIN_OPERATORS_MAX + 1]))


def _without_pattern(pairs: Pairs, pattern: str | None) -> Pairs:
    return pairs if pattern is None else pairs.take(np.flatnonzero(~has_pattern(pairs, pattern)))


def require_files(config: Config) -> None:
    """Raise `ValueError` if the files are missing, without reading them."""
    if config.folder is not None:
        files(Path(config.folder), "train")
        files(Path(config.folder), "test")


def source_digest(config: Config) -> str | None:
    """Return a digest of the contents of the source files; None for generated data. Raises `ValueError`."""
    if config.folder is None:
        return None
    folder = Path(config.folder)
    file_names = [file.name for part in ("train", "test") for file in files(folder, part)]
    return content_digest(folder, file_names)


def decode(tokens: Sequence[int]) -> str:
    """Return readable text, e.g. `( not a ) <sep> ( b ( and c ) )`."""
    return " ".join(VOCABULARY[token] for token in tokens)


def _parts(config: Config, part: Literal["train", "test"]) -> tuple[Pairs, ...]:
    """Return the pairs of a part (`train` or `test`) for each number of operators."""
    if config.folder is not None:
        return read_formula_pairs(Path(config.folder), part)
    return generate_pairs(config.test_pairs, config.data_seed)[part == "test"]


def _table(pairs: Pairs, form: str) -> pa.Table:
    if form == "pair":
        return pa.table({"tokens": pairs.column(), "label": pa.array(pairs.labels)})
    answers = list_column(np.arange(len(pairs) + 1), pairs.labels.astype(np.uint8))
    return pa.table({"tokens": pairs.column(), "answer": answers})
