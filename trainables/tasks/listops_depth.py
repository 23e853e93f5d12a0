"""ListOps by depth: train on shallow expressions and test on deeper ones.

Ray Chowdhury and Caragea, "Beam Tree Recursive Cells" (DG) and "On the Design Space Between Transformers and
Recursive Neural Nets" (DG2, and DG1 with 50 tokens exactly). Published depths include the level of the
digits, which are the leaves. Here depth is the number of nested operators:

          operator  train               valid               deeper
    dg     0.25/0.3  up to 5, 20 to 100  7, 20 to 500        8 to 9, 20 to 100
    dg2    0.3       1 to 5, 20 to 100   6, 20 to 100        7 to 8, 20 to 100
    dg1    0.3       1 to 5, 50 tokens   6, 50 tokens        7 to 8, 50 tokens

The other tests are those of ListOps-O: longer trees, operators with more arguments, and Long Range Arena.

Departures: the published files cannot be reproduced bit for bit. The tests of more arguments begin at 101
tokens instead of 100, so that they cannot contain a training tree.
"""

from typing import Literal

import pyarrow as pa
from pydantic import Field

from trainables.generators.listops_splits import (
    SplitLaw,
    decode,  # noqa: F401 required in every task
    generate,
    length_tests,
    listops_shape,
    token_classes,  # noqa: F401 used by the catalogue
    tree_table,
)
from trainables.generators.listops_trees import Law
from trainables.settings import Settings
from trainables.task_protocol import SplitInfo
from trainables.types import TaskShape

VERSION = 1
TRAINING_ONLY = frozenset({"train_examples"})
LENGTH_RANGES = ((200, 300), (500, 600), (900, 1000))
SHORT, MIDDLE, FIFTY = (20, 100), (20, 500), (50, 50)
OPERATOR_PROBABILITY = 0.3


class Config(Settings):
    """The defaults are the published ListOps-DG2."""

    name: Literal["listops_depth"] = "listops_depth"
    variant: Literal["dg", "dg2", "dg1"] = "dg2"
    """Published variant of the task, which sets the distributions of trees."""
    train_examples: int | None = Field(default=None, ge=1, le=2_000_000)
    """Number of training trees. Default: the published 100,000 for dg, and 1,000,000 for dg2 and dg1."""
    test_examples: int = Field(default=2_000, ge=1, le=20_000)
    """Number of trees of the valid split and of each test split."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of the generated trees, independent of training seeds: trials with different training seeds share
    one data set."""


def _laws(config: Config) -> dict[str, SplitLaw]:
    num_test = config.test_examples
    num_train = _train_examples(config)
    if config.variant == "dg":
        depths = {
            "train": SplitLaw(Law(6, 5), SHORT, num_train),
            "valid": SplitLaw(Law(10, 5, OPERATOR_PROBABILITY), MIDDLE, num_test, (7, 7)),
            "deeper": SplitLaw(Law(10, 5, OPERATOR_PROBABILITY), SHORT, num_test, (8, 9)),
        }
    else:
        lengths = SHORT if config.variant == "dg2" else FIFTY
        depths = {
            "train": SplitLaw(Law(6, 5, OPERATOR_PROBABILITY), lengths, num_train),
            "valid": SplitLaw(Law(7, 5, OPERATOR_PROBABILITY), lengths, num_test, (6, 6)),
            "deeper": SplitLaw(Law(9, 5, OPERATOR_PROBABILITY), lengths, num_test, (7, 8)),
        }
    return {
        **depths,
        **length_tests(LENGTH_RANGES, num_test),
        "arguments-10": SplitLaw(Law(9, 10), (101, 1000), num_test),
        "arguments-15": SplitLaw(Law(9, 15), (101, 1000), num_test),
        "lra": SplitLaw(Law(10, 10), (501, 1999), num_test),
    }


def settled(config: Config) -> Config:
    """Return settings with the published number of training trees filled in."""
    return config.model_copy(update={"train_examples": _train_examples(config)})


def _train_examples(config: Config) -> int:
    return config.train_examples or (100_000 if config.variant == "dg" else 1_000_000)


def shape(config: Config) -> TaskShape:
    """Return the sizes of ListOps: ten classes and a vocabulary of 18 words."""
    return listops_shape(_laws(config)["train"].lengths[1])


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """Return train, valid, deeper, and the tests of ListOps-O: length-200-300, length-500-600, and so on."""
    roles: dict[str, Literal["train", "valid"]] = {"train": "train", "valid": "valid"}
    return tuple(
        SplitInfo(name, roles.get(name, "test"), *law.lengths, law.examples)
        for name, law in _laws(config).items()
    )


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens` (uint8) and `label`."""
    # Lengths or depths of the splits differ from those of train, so they cannot share a tree.
    return tree_table(
        generate(_laws(config)[split], config.data_seed, ("listops_depth", config.variant, split), set())
    )
