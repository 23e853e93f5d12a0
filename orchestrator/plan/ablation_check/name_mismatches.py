"""Detect contradictions between the words of an arm (name and why) and its changes.

Words are weak evidence, so the result is a note in the plan and never an error.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.types import Change
from search_spaces.paths import leaves

_TAKES_AWAY = re.compile(r"^(?:minus|no|without)[-_](.+)$")


def find_name_mismatches(arm: BuiltInArm, reference: BuiltInArm) -> Iterator[str]:
    """Yield a warning if an arm named after a removed field does not change it; names may be swapped."""
    taken = _TAKES_AWAY.match(arm.request.label)
    if taken is None or not arm.changes:
        return
    named = _words(taken.group(1)) & _field_words(arm.system.settings, reference.system.settings)
    touched = set[str]().union(*(_touched(each.path, each.before, each.after) for each in arm.changes))
    if named and (not named & touched or not _takes_away(taken.group(1), named, arm.changes)):
        paths = ", ".join(change.path for change in arm.changes)
        yield (
            f"it is named for taking away {' and '.join(sorted(named))} and changes {paths}; were two arms "
            "swapped?"
        )


def _takes_away(name: str, fields: set[str], changes: Sequence[Change]) -> bool:
    """Return whether an arm named after a field changes that field itself, not only fields inside it."""
    return name not in fields or any(name in _words(change.path.rsplit(".", 1)[-1]) for change in changes)


def _touched(path: str, *values: Any) -> set[str]:
    found = _words(path)
    for value in values:
        if isinstance(value, Mapping):
            found |= _field_words({"": value})
        elif isinstance(value, str):
            found |= _words(value)
    return found


def _field_words(*settings: Mapping[str, Any]) -> set[str]:
    fields = (path for each in settings for path, _ in leaves(each))
    return {word for path in fields for word in _words(path.partition(".")[2])} - {"name"}


def _words(text: str) -> set[str]:
    """Return the words of a name, path or sentence; `max_layers` gives `max_layers`, `max` and `layers`."""
    whole = set(re.findall(r"[a-z0-9_]+", text.lower()))
    return whole | {part for word in whole for part in word.split("_") if part}
