"""ListOps of Long Range Arena: expressions of 500 to 2000 tokens.

Tay et al. 2021, "Long Range Arena": trees of at most 10 levels whose operators take 2 to 10 arguments, kept
if they have more than 500 and fewer than 2000 tokens. The published generator draws until such a tree comes
up; here the length is drawn first, which gives the same law.

Departure: the published files cannot be drawn again bit for bit; the trees here are other draws.
"""

from functools import lru_cache
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from trainables.generators.listops_splits import (
    SplitLaw,
    decode,  # noqa: F401 every task has one
    generate,
    listops_shape,
    table_of,
    token_classes,  # noqa: F401 read by the catalogue
)
from trainables.generators.listops_trees import Law, Trees
from trainables.settings import Settings
from trainables.task_protocol import SplitInfo
from trainables.types import TaskShape

VERSION = 1
LENGTHS = (501, 1999)


class Config(Settings):
    """The defaults are the published task."""

    name: Literal["listops_lra"] = "listops_lra"
    train_examples: int = Field(default=96_000, ge=1)
    """Training trees."""
    valid_examples: int = Field(default=2_000, ge=1)
    """Trees of the valid split."""
    test_examples: int = Field(default=2_000, ge=1)
    """Trees of the test split. All splits are cut from one drawing: another number changes them all."""
    data_seed: int = Field(default=0, ge=0)
    """Another seed, other trees. Trials with different training seeds share one data set."""


def shape(config: Config) -> TaskShape:  # noqa: ARG001 the same for all settings
    """Ten classes over 18 words."""
    return listops_shape(LENGTHS[1])


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """train, valid, test: all of one law."""
    return (
        SplitInfo("train", "train", *LENGTHS, config.train_examples),
        SplitInfo("valid", "valid", *LENGTHS, config.valid_examples),
        SplitInfo("test", "test", *LENGTHS, config.test_examples),
    )


def build(config: Config, split: str) -> pa.Table:
    """Columns `tokens` (uint8) and `label`. Raises `ValueError` for a split that `splits` does not list."""
    sizes = {info.name: info.examples or 0 for info in splits(config)}
    if split not in sizes:
        raise ValueError(f"listops_lra has no split {split!r}. Known: {', '.join(sizes)}")
    stop = dict(zip(sizes, np.cumsum([*sizes.values()]).tolist(), strict=True))[split]
    everything = _trees(sum(sizes.values()), config.data_seed)
    return table_of(everything.between(stop - sizes[split], stop))


@lru_cache(maxsize=1)
def _trees(wanted: int, data_seed: int) -> Trees:
    """Different trees; such long ones hardly ever repeat, so the order of appearance is a random one."""
    return generate(SplitLaw(Law(10, 10), LENGTHS, wanted), data_seed, ("listops_lra",), set())
