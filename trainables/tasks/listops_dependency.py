"""ListOps by dependency depth: the number of results that must be computed one after another.

Csordas, Irie and Schmidhuber, "The Neural Data Router", their own ("big") ListOps: an operator with
probability 0.3, 2 to 5 arguments, at most 50 tokens. Training uses dependency depths 2 to 6 in equal numbers,
validation 7, and tests 8 and 9. A control split has the depths of training (`iid`).

A digit has dependency depth 1. For MIN and MAX it is one more than that of the first argument that equals the
result. For MED it is one more than the deepest argument that the result is computed from, and for SM one more
than the deepest argument. A tree of many levels can therefore have a low dependency depth. All trees of a
split have as many levels as its greatest dependency depth. A tree with fewer levels becomes an argument,
though never the last, of a new operator until it has enough.

As published, the token count includes one extra token per operator, so that no tree has more than 49 tokens.

Departures: the published trees cannot be reproduced bit for bit, so the trees here are other draws from the
same distribution. The control split is drawn first and excluded from training. In the released code its trees
can occur in training.
"""

from collections.abc import Hashable
from functools import lru_cache
from typing import Literal

import pyarrow as pa
from pydantic import Field

from trainables.generators.listops_dependency_trees import COUNTED_MAX, DepthLaw, draw_balanced
from trainables.generators.listops_splits import (
    decode,  # noqa: F401 required in every task
    listops_shape,
    token_classes,  # noqa: F401 used by the catalogue
    tree_table,
)
from trainables.generators.listops_trees import Trees
from trainables.settings import Settings
from trainables.task_protocol import SplitInfo
from trainables.types import TaskShape

VERSION = 1
TRAINING_ONLY = frozenset({"train_examples"})
LENGTH_MAX = COUNTED_MAX - 1
LAWS = {"train": DepthLaw(2, 6), "valid": DepthLaw(7, 7), "iid": DepthLaw(2, 6), "deeper": DepthLaw(8, 9)}


class Config(Settings):
    """The defaults are the published task."""

    name: Literal["listops_dependency"] = "listops_dependency"
    train_examples: int = Field(default=1_000_000, ge=1, le=2_000_000)
    """Number of training trees."""
    test_examples: int = Field(default=1_000, ge=1, le=20_000)
    """Number of trees of the valid split and of each test split."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of the generated trees, independent of training seeds: trials with different training seeds share
    one data set."""


def shape(config: Config) -> TaskShape:  # noqa: ARG001 the same for all settings
    """Return the sizes of ListOps: ten classes and a vocabulary of 18 words."""
    return listops_shape(LENGTH_MAX)


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """Return train, valid, iid and deeper."""
    roles: dict[str, Literal["train", "valid"]] = {"train": "train", "valid": "valid"}
    return tuple(
        SplitInfo(name, roles.get(name, "test"), shortest(law), LENGTH_MAX, _examples(config, name))
        for name, law in LAWS.items()
    )


def shortest(law: DepthLaw) -> int:
    """Return the number of tokens of the smallest tree: each operator has a digit and one other argument."""
    return 3 * (law.shallowest - 1) + 1


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens` (uint8) and `label`."""
    if split == "iid":
        return tree_table(_control_trees(config.test_examples, config.data_seed))
    used_rows: set[Hashable] = set()
    if split == "train":
        used_rows |= set(_control_trees(config.test_examples, config.data_seed).rows())
    return tree_table(
        draw_balanced(LAWS[split], _examples(config, split), config.data_seed, split, used_rows)
    )


def _examples(config: Config, split: str) -> int:
    return config.train_examples if split == "train" else config.test_examples


@lru_cache(maxsize=1)
def _control_trees(count: int, data_seed: int) -> Trees:
    """Return the trees of the split iid, which are excluded from training."""
    return draw_balanced(LAWS["iid"], count, data_seed, "iid", set())
