"""ListOps of Long Range Arena: expressions of 500 to 2000 tokens.

Tay et al. 2021, "Long Range Arena": trees of at most 10 levels whose operators take 2 to 10 arguments,
accepted if they have more than 500 and fewer than 2000 tokens. The published generator draws until it finds
such a tree. Here the length is drawn first, which gives the same distribution.

Difference from the published task: the published files cannot be reproduced bit for bit, so this task
generates other trees from the same distribution.
"""

from collections.abc import Hashable
from functools import lru_cache
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field

from trainables.field_effects import AffectsSplits
from trainables.generators.listops_splits import (
    SplitLaw,
    decode,  # noqa: F401 required in every task
    generate,
    listops_shape,
    token_classes,  # noqa: F401 used by the catalogue
    tree_table,
)
from trainables.generators.listops_trees import Law, Trees
from trainables.settings import Settings
from trainables.task_protocol import SplitInfo, train_valid_test
from trainables.types import TaskShape

VERSION = 2
TRAINING_ONLY = frozenset({"train_examples"})
LENGTHS = (501, 1999)
BUILD_ORDER = ("valid", "test", "train")
"""Splits in the order in which they are drawn; each excludes the trees of those before it."""


class Config(Settings):
    """The defaults are the published task."""

    name: Literal["listops_lra"] = "listops_lra"
    train_examples: int = Field(default=96_000, ge=1)
    """Number of training trees."""
    valid_examples: int = Field(default=2_000, ge=1)
    """Number of trees of the valid split."""
    test_examples: Annotated[int, AffectsSplits("test")] = Field(default=2_000, ge=1)
    """Number of trees of the test split."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of the generated trees, independent of training seeds: trials with different training seeds share
    one data set."""


def shape(config: Config) -> TaskShape:  # noqa: ARG001 the same for all settings
    """Return the sizes of ListOps: ten classes and a vocabulary of 18 words."""
    return listops_shape(LENGTHS[1])


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """Return train, valid and test, all of the same distribution."""
    return train_valid_test(*LENGTHS, (config.train_examples, config.valid_examples, config.test_examples))


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens` (uint8) and `label`."""
    sizes = {info.name: info.examples or 0 for info in splits(config)}
    return tree_table(_trees(split, tuple((name, sizes[name]) for name in BUILD_ORDER), config.data_seed))


@lru_cache(maxsize=3)
def _trees(split: str, sizes: tuple[tuple[str, int], ...], data_seed: int) -> Trees:
    """Return the trees of a split; none of them is in a split that is drawn before it."""
    names = [name for name, _ in sizes]
    earlier_splits = names[: names.index(split)]
    used_rows: set[Hashable] = set()
    for name in earlier_splits:
        used_rows.update(_trees(name, sizes[: names.index(name) + 1], data_seed).rows())
    return generate(
        SplitLaw(Law(10, 10), LENGTHS, dict(sizes)[split]), data_seed, ("listops_lra", split), used_rows
    )
