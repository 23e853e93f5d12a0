"""Small versions of a model that differ in several choices at once: a few arms, each value in one of them.

Contracts hold every arm to thirty promises. With one arm for each value that took 450 seconds of processor
time; that merging hides no value behind another is tested beside it.
"""

from collections import Counter
from itertools import permutations
from typing import Any, Final

from trainables.settings import Settings
from trainables.testing.arms import BASE, Path, Raw, changed, changes, fits, name_change
from trainables.types import TaskShape

Change = tuple[Path, Any]
MOST: Final = 8
FEWER: Final = {"gutlb": 4}
"""Changes in an arm: what fails is soon found among so few. Among more this model has some without effect."""
ALONE: Final = ("causal",)
"""Fields that arms are tried with and without anyway."""
LATENT: Final = ("retriever", "window", "modulated", "transition_features", "halt")
APART: Final = (
    ("activation", "tanh_gelu"),
    ("cell", "tanh_gelu"),
    ("chunk.by", "chunk.even"),
    ("geometric", "direction"),
    ("geometric", "normalise_rows"),
    ("halt.origin", "halt.rule"),
    ("halt.unit", "kv"),
    *(("structure", each) for each in LATENT),
)
"""Fields of which another value of the first leaves the second, or what it holds, without effect."""


def merged(config: Settings, shape: TaskShape) -> dict[str, Raw]:
    """Settings of `config`, and of arms that have each value of `trainables.testing.arms.variations` once.

    Each change goes into the first arm that it fits into. Labels name all changes of an arm.
    """
    raw = config.model_dump(mode="json")
    found = {BASE: raw}
    for group in groups(config, shape):
        found[",".join(name_change(*change) for change in group)] = changed_by(raw, group)
    return found


def groups(config: Settings, shape: TaskShape) -> list[list[Change]]:
    """The changes that each arm makes of `config`."""
    raw = config.model_dump(mode="json")
    fitting = [change for change in changes(config) if fits(changed(raw, *change), shape)]
    values = Counter(path for path, _ in fitting)
    most, made = FEWER.get(raw["name"], MOST), list[list[Change]]()
    # Values of one field need an arm each: others join them.
    for change in sorted(fitting, key=lambda change: -values[change[0]]):
        for group in made:
            together = [*group, change]
            if len(group) < most and _apart(together) and fits(changed_by(raw, together), shape):
                group.append(change)
                break
        else:
            made.append([change])
    return made


def changed_by(raw: Raw, group: list[Change]) -> Raw:
    """A copy with all these changes."""
    for change in group:
        raw = changed(raw, *change)
    return raw


def _apart(group: list[Change]) -> bool:
    """Whether none decides what another means, as `halt` of `halt.unit`, and `gate` of `gate_width`."""
    names = [".".join(path) for path, _ in group]
    return not any(
        first in ALONE
        or second.startswith(first)
        or any(first == one and second.startswith(other) for one, other in APART)
        for first, second in permutations(names, 2)
    )
