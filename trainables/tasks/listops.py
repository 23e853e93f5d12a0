"""ListOps-O: what does a nested expression of list operations evaluate to?

Trees: Nangia and Bowman 2018, "ListOps". Splits: Ray Chowdhury and Caragea 2023, "Beam Tree Recursive Cells",
and, by the same authors, "Investigating Recurrent Transformers with Dynamic Halt": training on trees of up
to 100 tokens; tests on the same law unfiltered (near-IID), on longer trees, on operators with more arguments,
and on the test law of Long Range Arena (Tay et al. 2021).

Departures: the published files cannot be drawn again bit for bit (they depend on Python's set order), so the
trees here are other draws from the same law; where a published generator emits duplicates, we do not; and
trees that are in the training corpus are left out of every test split.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Annotated, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from trainables.data.protocol import SplitInfo
from trainables.data.unique import first_unseen
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.tasks._listops_lengths import LengthLaw
from trainables.tasks._listops_trees import Law, Trees, concatenate, grow
from trainables.types import TaskShape

VERSION = 1
WORDS = (*"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]", "<unk>", "<pad>", "<sep>")
"""Token ids are positions in this list. The last three never occur in a tree."""
PAD = WORDS.index("<pad>")
DRAW_TOKENS = 2_000_000
"""Expected tokens of one round of draws; bounds memory and is part of what makes the data what it is."""


def _as_tuples(value: object) -> object:
    """YAML and JSON know only lists."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _check_range(bounds: tuple[int, int]) -> tuple[int, int]:
    low, high = bounds
    # Below 10 tokens there may be fewer different trees than are asked for.
    if not (10 <= low <= high - 2 and high <= 2000):
        raise ValueError(
            "a length range must have 10 <= low, high <= 2000 and a length strictly between, got "
            f"[{low}, {high}]"
        )
    return bounds


LengthRanges = Annotated[
    tuple[Annotated[tuple[int, int], AfterValidator(_check_range)], ...], BeforeValidator(_as_tuples)
]


class Config(Settings):
    """The defaults are the published task; smaller laws and sizes make data that a laptop learns fast."""

    name: Literal["listops"] = "listops"
    train_length_max: int = Field(default=100, ge=4)
    """Longest training example in tokens. The valid and near-iid splits are not filtered, as published."""
    trees: int = Field(default=100_000, ge=100, le=2_000_000)
    """Unique trees of the corpus that near-iid, valid and, of what is left, train are taken from."""
    near_iid_examples: int = Field(default=10_000, ge=1)
    """Corpus trees kept for the test split near-iid."""
    valid_examples: int = Field(default=1_000, ge=1)
    """Corpus trees kept for the valid split."""
    test_examples: int = Field(default=2_000, ge=1, le=100_000)
    """Examples of every test split but near-iid; these have laws of their own, whatever the corpus is."""
    depth_max: int = Field(default=20, ge=2, le=50)
    """Levels of a corpus tree, the digits included: at most `depth_max - 1` nested operators."""
    arguments_max: int = Field(default=5, ge=2, le=15)
    """An operator of the corpus takes 2 to `arguments_max` arguments."""
    length_ranges: LengthRanges = tuple((low, low + 100) for low in range(200, 1000, 100))
    """Test splits `length-<low>-<high>`, bounds excluded, of the published law (20 levels, 5 arguments)."""
    data_seed: int = Field(default=0, ge=0)
    """Another seed, other trees. Trials with different training seeds share one data set."""

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        if len(set(self.length_ranges)) < len(self.length_ranges):
            raise ValueError(f"length_ranges must differ, got {list(map(list, self.length_ranges))}")
        taken = self.near_iid_examples + self.valid_examples
        if taken >= self.trees:
            raise ValueError(
                f"trees must exceed near_iid_examples + valid_examples, what is left is trained on; got "
                f"trees={self.trees}, near_iid_examples={self.near_iid_examples}, "
                f"valid_examples={self.valid_examples}"
            )
        law = _corpus_law(self)
        # Collecting the last of all trees takes for ever; a quarter of them is met in reasonable time.
        if self.trees * 4 > law.distinct():
            raise ValueError(
                f"trees must be at most a quarter of the {law.distinct()} different trees of this law, got "
                f"trees={self.trees} with depth_max={self.depth_max}, arguments_max={self.arguments_max}; "
                f"allow deeper trees or more arguments, or ask for at most {law.distinct() // 4} trees"
            )
        if law.mean_length() > 500:
            raise ValueError(
                f"corpus trees must have at most 500 tokens on average, got {law.mean_length():.0f} with "
                f"depth_max={self.depth_max}, arguments_max={self.arguments_max}; lower one of them"
            )
        return self


@dataclass(frozen=True, slots=True)
class _TestLaw:
    """Law and bounds (both included) of a test split that is not taken from the corpus."""

    law: Law
    length_min: int
    length_max: int


def _test_laws(config: Config) -> dict[str, _TestLaw]:
    """The published laws, whatever the corpus is."""
    longer = {
        f"length-{low}-{high}": _TestLaw(Law(20, 5), low + 1, high - 1) for low, high in config.length_ranges
    }
    return {
        **longer,
        "arguments-10": _TestLaw(Law(9, 10), 100, 1000),
        "arguments-15": _TestLaw(Law(9, 15), 100, 1000),
        "lra": _TestLaw(Law(10, 10), 501, 1999),
    }


def _corpus_law(config: Config) -> Law:
    return Law(config.depth_max, config.arguments_max)


def shape(config: Config) -> TaskShape:
    """Ten classes over 18 words."""
    return TaskShape(
        head="classify",
        vocabulary_size=len(WORDS),
        num_classes=10,
        pad_id=PAD,
        length_max=min(config.train_length_max, _corpus_law(config).longest()),
    )


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """train, valid, near-iid, length-200-300 .. length-900-1000, arguments-10, arguments-15, lra."""
    longest = _corpus_law(config).longest()
    return (
        SplitInfo("train", "train", 1, min(config.train_length_max, longest), None),
        SplitInfo("valid", "valid", 1, longest, config.valid_examples),
        SplitInfo("near-iid", "test", 1, longest, config.near_iid_examples),
        *(
            SplitInfo(name, "test", test.length_min, test.length_max, config.test_examples)
            for name, test in _test_laws(config).items()
        ),
    )


def build(config: Config, split: str) -> pa.Table:
    """Columns `tokens` (uint8) and `label`. Raises `ValueError` for a split that `splits` does not list."""
    if split in (tests := _test_laws(config)):
        return _table(_generated(config, split, tests[split]))
    corpus = _corpus(config.trees, _corpus_law(config), config.data_seed)
    cuts = np.cumsum([config.near_iid_examples, config.valid_examples])
    near_iid, valid, train = np.split(np.arange(len(corpus)), cuts)
    short = train[corpus.lengths[train] <= config.train_length_max]
    parts = {"near-iid": near_iid, "valid": valid, "train": short}
    if split not in parts:
        known = ", ".join(info.name for info in splits(config))
        raise ValueError(f"listops has no split {split!r}. Known: {known}")
    if not len(parts[split]):
        raise ValueError(
            f"train_length_max must leave trees to train on, got {config.train_length_max} and none of "
            f"{len(train)} is that short; raise train_length_max or trees"
        )
    return _table(corpus.take(parts[split]))


def decode(tokens: Sequence[int]) -> str:
    """E.g. `[MAX 2 [SM 9 4 ] ]`."""
    return " ".join(WORDS[token] for token in tokens)


@lru_cache(maxsize=1)
def _corpus(wanted: int, law: Law, data_seed: int) -> Trees:
    """`wanted` unique trees in random order: order of appearance would put the common, short ones first."""
    roots = max(1, int(DRAW_TOKENS / law.mean_length()))
    draws = (grow(numpy_stream(data_seed, "listops", "corpus", turn), law, roots) for turn in count())
    trees = _first_unique(draws, wanted, set())
    keys = numpy_stream(data_seed, "listops", "order").bit_generator.random_raw(wanted)
    return trees.take(np.argsort(keys, kind="stable"))


def _generated(config: Config, split: str, test: _TestLaw) -> Trees:
    """A split that has a law of its own. Trees of the corpus are left out."""
    corpus = _corpus(config.trees, _corpus_law(config), config.data_seed)
    alike = np.flatnonzero((corpus.lengths >= test.length_min) & (corpus.lengths <= test.length_max))
    roots = min(config.test_examples, DRAW_TOKENS // test.length_max)
    lengths = LengthLaw(test.law, test.length_max)
    streams = (numpy_stream(config.data_seed, "listops", split, turn) for turn in count())
    draws = (lengths.draw(stream, roots, test.length_min, test.length_max) for stream in streams)
    return _first_unique(draws, config.test_examples, set(corpus.take(alike).rows()))


def _first_unique(draws: Iterator[Trees], wanted: int, seen: set[Hashable]) -> Trees:
    """The first `wanted` trees of `draws` that are not in `seen` and not drawn before."""
    kept: list[Trees] = []
    missing = wanted
    while missing:
        drawn = next(draws)
        new = np.asarray(first_unseen(drawn.rows(), seen, missing), dtype=np.int64)
        kept.append(drawn.take(new))
        missing -= len(new)
    return concatenate(kept)


def _table(trees: Trees) -> pa.Table:
    tokens = pa.LargeListArray.from_arrays(pa.array(trees.offsets), pa.array(trees.tokens))
    return pa.table({"tokens": tokens, "label": pa.array(trees.labels)})
