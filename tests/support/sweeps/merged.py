"""Small versions of a model that change several fields at once, so that few arms cover every value.

Contracts test thirty properties of every arm. One arm for each value would take 450 seconds of processor
time.
"""

from collections import Counter
from itertools import permutations
from typing import Any, Final

from trainables.settings import Settings
from trainables.testing.arms import BASE, Path, Raw, is_valid_for, name_change, possible_changes, with_change
from trainables.types import TaskShape

Change = tuple[Path, Any]
CHANGES_PER_ARM: Final = 8
MODEL_CHANGES_PER_ARM: Final = {"gutlb": 4}
"""Maximum number of changes of an arm: few, so that failures are easy to locate. With more changes, some
changes of GUTLB have no effect."""
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
    *(("structure", field) for field in STRUCTURE_FIELDS),
)
"""Pairs of fields in which a change of the first field can take away the effect of the second field."""


def merged_arms(config: Settings, shape: TaskShape) -> dict[str, Raw]:
    """Return the settings of a baseline and of arms that each change several of its fields.

    The baseline is `config`. Each value that `changes` lists for `config` is a change in exactly one arm. A
    change is added to the first arm in which the change is valid. The label of an arm names all its changes.
    """
    raw = config.model_dump(mode="json")
    arms = {BASE: raw}
    for group in change_groups(config, shape):
        arms[",".join(name_change(*change) for change in group)] = apply_changes(raw, group)
    return arms


def change_groups(config: Settings, shape: TaskShape) -> list[list[Change]]:
    """Return the changes that each arm makes to `config`."""
    raw = config.model_dump(mode="json")
    valid_changes = [
        change for change in possible_changes(config) if is_valid_for(with_change(raw, *change), shape)
    ]
    num_values = Counter(path for path, _ in valid_changes)
    limit, groups = MODEL_CHANGES_PER_ARM.get(raw["name"], CHANGES_PER_ARM), list[list[Change]]()
    # Values of one field need an arm each; values of other fields join these arms.
    for change in sorted(valid_changes, key=lambda change: -num_values[change[0]]):
        for group in groups:
            candidate = [*group, change]
            if (
                len(group) < limit
                and _is_compatible(candidate)
                and is_valid_for(apply_changes(raw, candidate), shape)
            ):
                group.append(change)
                break
        else:
            groups.append([change])
    return groups


def apply_changes(raw: Raw, group: list[Change]) -> Raw:
    """Return a copy of the settings with all of these changes."""
    for change in group:
        raw = with_change(raw, *change)
    return raw


def _is_compatible(group: list[Change]) -> bool:
    """Return whether no change decides the meaning of another, as `halt` does of `halt.unit`."""
    names = [".".join(path) for path, _ in group]
    return not any(
        first in TESTED_ANYWAY
        or second.startswith(first)
        or any(first == field and second.startswith(affected) for field, affected in CONFLICTS)
        for first, second in permutations(names, 2)
    )
