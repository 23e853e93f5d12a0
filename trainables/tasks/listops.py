"""ListOps-O: evaluate a nested expression of list operations.

Trees: Nangia and Bowman 2018, "ListOps". Splits: Ray Chowdhury and Caragea 2023, "Beam Tree Recursive Cells",
and, by the same authors, "Investigating Recurrent Transformers with Dynamic Halt". Training uses trees of up
to 100 tokens. Tests use the same distribution unfiltered (near-IID), longer trees, operators with more
arguments, and the test distribution of Long Range Arena (Tay et al. 2021).

Near-iid and valid contain 11% of a corpus, as published (11,000 of 100,000 trees). Their corpus does not
depend on the number of training trees, so arms with different training sets have the same tests.

Departures: the published files cannot be reproduced bit for bit (they depend on Python's set order), so the
trees here are other draws from the same distribution. Duplicates, which a published generator can return, are
removed. Trees of all other splits are excluded from training.
"""

from collections.abc import Hashable
from functools import lru_cache
from itertools import count
from typing import Annotated, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from trainables.data.draws import permutation
from trainables.field_effects import AffectsSplits
from trainables.generators.listops_splits import (
    DRAW_TOKENS,
    SplitLaw,
    decode,  # noqa: F401 required in every task
    first_unique,
    generate,
    length_test,
    length_tests,
    listops_shape,
    token_classes,  # noqa: F401 used by the catalogue
    tree_table,
)
from trainables.generators.listops_trees import Law, Trees, grow
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.task_protocol import SplitInfo
from trainables.types import TaskShape

VERSION = 2
TRAINING_ONLY = frozenset({"trees", "train_length_max"})
HELD_OUT_PERCENT = 11
"""Share of near-iid and valid in the published corpus."""
HELD_OUT = ("near-iid", "valid")


def _as_tuples(value: object) -> object:
    """Return lists as tuples; YAML and JSON have only lists."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _check_range(bounds: tuple[int, int]) -> tuple[int, int]:
    low, high = bounds
    # Below 10 tokens there may be fewer different trees than requested.
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
    """Settings of the task. The defaults are the published task.

    Smaller trees and sizes train fast on a laptop.
    """

    name: Literal["listops"] = "listops"
    train_length_max: int = Field(default=100, ge=4)
    """Maximum number of tokens of a training tree. As published, the splits valid and near-iid have no
    maximum."""
    trees: int = Field(default=100_000, ge=100, le=2_000_000)
    """Number of unique trees of the corpus, from which train, valid and near-iid are taken. The training
    split then leaves out trees longer than `train_length_max`."""
    near_iid_examples: int = Field(default=10_000, ge=1)
    """Number of trees of the corpus in the test split near-iid."""
    valid_examples: int = Field(default=1_000, ge=1)
    """Number of trees of the corpus in the valid split."""
    test_examples: Annotated[int, AffectsSplits("length-*", "arguments-*", "lra")] = Field(
        default=2_000, ge=1, le=100_000
    )
    """Number of trees of each test split except near-iid. Their distributions do not depend on the corpus."""
    depth_max: int = Field(default=20, ge=2, le=50)
    """Maximum number of levels of a corpus tree. Digits are a level, so operators nest `depth_max - 1`
    deep."""
    arguments_max: int = Field(default=5, ge=2, le=15)
    """Maximum number of arguments of an operator in the corpus; the minimum is 2."""
    length_ranges: Annotated[LengthRanges, AffectsSplits("length-*", each=length_test)] = tuple(
        (low, low + 100) for low in range(200, 1000, 100)
    )
    """Ranges of lengths in tokens, bounds excluded. Each range gives a test split `length-<low>-<high>` of
    the published distribution with 20 levels and 5 arguments."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of the generated trees, independent of training seeds: trials with different training seeds share
    one data set."""

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        if len(set(self.length_ranges)) < len(self.length_ranges):
            raise ValueError(f"length_ranges must differ, got {list(map(list, self.length_ranges))}")
        num_held_out = self.near_iid_examples + self.valid_examples
        if num_held_out >= self.trees:
            raise ValueError(
                "trees must exceed near_iid_examples + valid_examples, because the rest are the training "
                "trees; got "
                f"trees={self.trees}, near_iid_examples={self.near_iid_examples}, "
                f"valid_examples={self.valid_examples}"
            )
        law = _corpus_law(self)
        # Drawing every possible tree takes too long; a quarter of them is drawn in reasonable time.
        if self.trees * 4 > law.distinct():
            raise ValueError(
                f"trees must be at most a quarter of the {law.distinct()} different trees of this "
                "distribution, got "
                f"trees={self.trees} with depth_max={self.depth_max}, arguments_max={self.arguments_max}; "
                f"allow deeper trees or more arguments, or request at most {law.distinct() // 4} trees"
            )
        if law.mean_length() > 500:
            raise ValueError(
                f"corpus trees must have at most 500 tokens on average, got {law.mean_length():.0f} with "
                f"depth_max={self.depth_max}, arguments_max={self.arguments_max}; lower one of them"
            )
        return self


def _test_laws(config: Config) -> dict[str, SplitLaw]:
    """Return the published distributions, which do not depend on the corpus."""
    return {
        **length_tests(config.length_ranges, config.test_examples),
        "arguments-10": SplitLaw(Law(9, 10), (100, 1000), config.test_examples),
        "arguments-15": SplitLaw(Law(9, 15), (100, 1000), config.test_examples),
        "lra": SplitLaw(Law(10, 10), (501, 1999), config.test_examples),
    }


def _corpus_law(config: Config) -> Law:
    return Law(config.depth_max, config.arguments_max)


def settled(config: Config) -> Config:
    """Return settings with test ranges in order and the length limited by the corpus distribution."""
    longest = min(config.train_length_max, _corpus_law(config).longest())
    ranges = tuple(sorted(config.length_ranges))
    return config.model_copy(update={"length_ranges": ranges, "train_length_max": longest})


def shape(config: Config) -> TaskShape:
    """Return a shape with ten classes over 18 words."""
    return listops_shape(min(config.train_length_max, _corpus_law(config).longest()))


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """Return train, valid, near-iid, length-200-300 .. length-900-1000, arguments-10, arguments-15, lra."""
    longest = _corpus_law(config).longest()
    return (
        SplitInfo("train", "train", 1, min(config.train_length_max, longest), None),
        SplitInfo("valid", "valid", 1, longest, config.valid_examples),
        SplitInfo("near-iid", "test", 1, longest, config.near_iid_examples),
        *(SplitInfo(name, "test", *test.lengths, test.examples) for name, test in _test_laws(config).items()),
    )


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens` (uint8) and `label`."""
    if split in _test_laws(config):
        return tree_table(_test_trees(config, split))
    if split in HELD_OUT:
        return tree_table(_held_out(config)[HELD_OUT.index(split)])
    train = _train_trees(config)
    short_enough = np.flatnonzero(train.lengths <= config.train_length_max)
    if not len(short_enough):
        raise ValueError(
            f"train_length_max must not exclude all training trees, got {config.train_length_max} and "
            f"{len(train)} longer trees; raise train_length_max or trees"
        )
    return tree_table(train.take(short_enough))


def _held_out(config: Config) -> tuple[Trees, Trees]:
    """Return the trees of near-iid and of valid: random trees, about 11% of a corpus together."""
    law, num_both = _corpus_law(config), config.near_iid_examples + config.valid_examples
    # Validation refuses settings in which `both` is more than a quarter of all trees.
    num_wanted = max(num_both, min(num_both * 100 // HELD_OUT_PERCENT, law.distinct() // 4))
    corpus = _corpus(num_wanted, law, config.data_seed)
    return corpus.between(0, config.near_iid_examples), corpus.between(config.near_iid_examples, num_both)


def _train_trees(config: Config) -> Trees:
    """Return training trees: corpus trees that are in no other split; some may be too long to train on."""
    longest = min(config.train_length_max, _corpus_law(config).longest())
    held_out = _held_out(config)
    tests = [
        _test_trees(config, name) for name, law in _test_laws(config).items() if law.lengths[0] <= longest
    ]
    held_out_rows = frozenset(row for trees in (*held_out, *tests) for row in trees.rows())
    return _corpus(
        config.trees - sum(map(len, held_out)), _corpus_law(config), config.data_seed, held_out_rows
    )


@lru_cache(maxsize=2)
def _corpus(num_wanted: int, law: Law, data_seed: int, seen: frozenset[Hashable] = frozenset()) -> Trees:
    """Return `num_wanted` unique trees outside `seen`, shuffled because short ones are drawn first."""
    roots = max(1, int(DRAW_TOKENS / law.mean_length()))
    draws = (
        grow(numpy_stream(data_seed, "listops", "corpus", round_index), law, roots) for round_index in count()
    )
    trees = first_unique(draws, num_wanted, set(seen))
    return trees.take(permutation(numpy_stream(data_seed, "listops", "order"), num_wanted))


@lru_cache(maxsize=4)
def _test_trees(config: Config, split: str) -> Trees:
    """Return the trees of a test split with its own distribution; none is in near-iid or valid."""
    law = _test_laws(config)[split]
    shortest, longest = law.lengths
    held_out: set[Hashable] = {
        row
        for trees in _held_out(config)
        for row in trees.take(np.flatnonzero((trees.lengths >= shortest) & (trees.lengths <= longest))).rows()
    }
    return generate(law, config.data_seed, ("listops", split), held_out)
