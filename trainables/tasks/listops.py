"""ListOps-O: what does a nested expression of list operations evaluate to?

Trees: Nangia and Bowman 2018, "ListOps". Splits: Ray Chowdhury and Caragea 2023, "Beam Tree Recursive Cells",
and, by the same authors, "Investigating Recurrent Transformers with Dynamic Halt": training on trees of up
to 100 tokens; tests on the same law unfiltered (near-IID), on longer trees, on operators with more arguments,
and on the test law of Long Range Arena (Tay et al. 2021).

Departures: the published files cannot be drawn again bit for bit (they depend on Python's set order), so the
trees here are other draws from the same law; where a published generator emits duplicates, we do not; and
trees that are in the training corpus are left out of every test split.
"""

from functools import lru_cache
from itertools import count
from typing import Annotated, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from trainables.acting import InSplits
from trainables.generators.listops_splits import (
    DRAW_TOKENS,
    SplitLaw,
    decode,  # noqa: F401 every task has one
    first_unique,
    generate,
    length_test,
    length_tests,
    listops_shape,
    table_of,
    token_classes,  # noqa: F401 read by the catalogue
)
from trainables.generators.listops_trees import Law, Trees, grow
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.task_protocol import SplitInfo
from trainables.types import TaskShape

VERSION = 1


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
    test_examples: Annotated[int, InSplits("length-*", "arguments-*", "lra")] = Field(
        default=2_000, ge=1, le=100_000
    )
    """Examples of every test split but near-iid; these have laws of their own, whatever the corpus is."""
    depth_max: int = Field(default=20, ge=2, le=50)
    """Levels of a corpus tree, the digits included: at most `depth_max - 1` nested operators."""
    arguments_max: int = Field(default=5, ge=2, le=15)
    """An operator of the corpus takes 2 to `arguments_max` arguments."""
    length_ranges: Annotated[LengthRanges, InSplits("length-*", each=length_test)] = tuple(
        (low, low + 100) for low in range(200, 1000, 100)
    )
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


def _test_laws(config: Config) -> dict[str, SplitLaw]:
    """The published laws, whatever the corpus is."""
    return {
        **length_tests(config.length_ranges, config.test_examples),
        "arguments-10": SplitLaw(Law(9, 10), (100, 1000), config.test_examples),
        "arguments-15": SplitLaw(Law(9, 15), (100, 1000), config.test_examples),
        "lra": SplitLaw(Law(10, 10), (501, 1999), config.test_examples),
    }


def _corpus_law(config: Config) -> Law:
    return Law(config.depth_max, config.arguments_max)


def settled(config: Config) -> Config:
    """With tests in order, and with no longer examples than the law of the corpus has."""
    longest = min(config.train_length_max, _corpus_law(config).longest())
    ranges = tuple(sorted(config.length_ranges))
    return config.model_copy(update={"length_ranges": ranges, "train_length_max": longest})


def shape(config: Config) -> TaskShape:
    """Ten classes over 18 words."""
    return listops_shape(min(config.train_length_max, _corpus_law(config).longest()))


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """train, valid, near-iid, length-200-300 .. length-900-1000, arguments-10, arguments-15, lra."""
    longest = _corpus_law(config).longest()
    return (
        SplitInfo("train", "train", 1, min(config.train_length_max, longest), None),
        SplitInfo("valid", "valid", 1, longest, config.valid_examples),
        SplitInfo("near-iid", "test", 1, longest, config.near_iid_examples),
        *(SplitInfo(name, "test", *test.lengths, test.examples) for name, test in _test_laws(config).items()),
    )


def build(config: Config, split: str) -> pa.Table:
    """Columns `tokens` (uint8) and `label`. Raises `ValueError` for a split that `splits` does not list."""
    if split in (tests := _test_laws(config)):
        return table_of(_generated(config, split, tests[split]))
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
    return table_of(corpus.take(parts[split]))


@lru_cache(maxsize=1)
def _corpus(wanted: int, law: Law, data_seed: int) -> Trees:
    """`wanted` unique trees in random order: order of appearance would put the common, short ones first."""
    roots = max(1, int(DRAW_TOKENS / law.mean_length()))
    draws = (grow(numpy_stream(data_seed, "listops", "corpus", turn), law, roots) for turn in count())
    trees = first_unique(draws, wanted, set())
    keys = numpy_stream(data_seed, "listops", "order").bit_generator.random_raw(wanted)
    return trees.take(np.argsort(keys, kind="stable"))


def _generated(config: Config, split: str, test: SplitLaw) -> Trees:
    """A split that has a law of its own. Trees of the corpus are left out."""
    corpus = _corpus(config.trees, _corpus_law(config), config.data_seed)
    shortest, longest = test.lengths
    alike = np.flatnonzero((corpus.lengths >= shortest) & (corpus.lengths <= longest))
    return generate(test, config.data_seed, ("listops", split), set(corpus.take(alike).rows()))
