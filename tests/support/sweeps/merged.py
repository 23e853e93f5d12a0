"""Small versions of a model that change several fields at once: few arms, each value in one of them.

Contracts test thirty properties of every arm. One arm for each value would take 450 seconds of processor
time. test_merged.py tests that no value hides the effect of another.
"""

from collections import Counter
from itertools import permutations
from typing import Any, Final

from trainables.settings import Settings
from trainables.testing.arms import BASE, Path, Raw, changed, changes, fits, name_change
from trainables.types import TaskShape

Change = tuple[Path, Any]
CHANGES_PER_ARM: Final = 8
MODEL_CHANGES_PER_ARM: Final = {"gutlb": 4}
"""Changes of an arm: few, so that failures are easy to locate. With more, some of GUTLB have no effect."""
TESTED_ANYWAY: Final = ("causal",)
"""Fields that contracts test with both values in every arm."""
STRUCTURE_FIELDS: Final = ("retriever", "window", "modulated", "transition_features", "halt")
CONFLICTS: Final = (
    ("activation", "tanh_gelu"),
    ("cell", "tanh_gelu"),
    ("chunk.by", "chunk.even"),
    ("geometric", "direction"),
    ("geometric", "normalise_rows"),
    ("halt.origin", "halt.rule"),
    ("halt.unit", "kv"),
    *(("structure", each) for each in STRUCTURE_FIELDS),
)
"""Pairs of fields; another value of the first can make the second, or its value, ineffective."""


def merged_arms(config: Settings, shape: TaskShape) -> dict[str, Raw]:
    """Return the settings of `config`, and of arms that together have each value of `variations` once.

    Each change goes into the first arm that it fits. Labels name all changes of an arm.
    """
    raw = config.model_dump(mode="json")
    arms = {BASE: raw}
    for group in change_groups(config, shape):
        arms[",".join(name_change(*change) for change in group)] = apply_changes(raw, group)
    return arms


def change_groups(config: Settings, shape: TaskShape) -> list[list[Change]]:
    """Return the changes that each arm makes to `config`."""
    raw = config.model_dump(mode="json")
    fitting = [change for change in changes(config) if fits(changed(raw, *change), shape)]
    values = Counter(path for path, _ in fitting)
    limit, groups = MODEL_CHANGES_PER_ARM.get(raw["name"], CHANGES_PER_ARM), list[list[Change]]()
    # Values of one field need an arm each; values of other fields join these arms.
    for change in sorted(fitting, key=lambda change: -values[change[0]]):
        for group in groups:
            candidate = [*group, change]
            if (
                len(group) < limit
                and _is_compatible(candidate)
                and fits(apply_changes(raw, candidate), shape)
            ):
                group.append(change)
                break
        else:
            groups.append([change])
    return groups


def apply_changes(raw: Raw, group: list[Change]) -> Raw:
    """Return a copy of the settings with all of these changes."""
    for change in group:
        raw = changed(raw, *change)
    return raw


def _is_compatible(group: list[Change]) -> bool:
    """Return whether no change decides the meaning of another, as `halt` does of `halt.unit`."""
    names = [".".join(path) for path, _ in group]
    return not any(
        first in TESTED_ANYWAY
        or second.startswith(first)
        or any(first == one and second.startswith(other) for one, other in CONFLICTS)
        for first, second in permutations(names, 2)
    )
