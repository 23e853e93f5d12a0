"""Detect contradictions between the name of an arm and its changes.

A name is weak evidence, so the result is a warning in the plan and never an error.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.plan.types import Change
from search_spaces.paths import leaves

_REMOVES = re.compile(r"^(?:minus|no|without)[-_](.+)$")


def find_name_mismatches(name: str, changes: Sequence[Change], *settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning if an arm named after a removed field does not change it; names may be swapped.

    Args:
        name: Name of the arm.
        changes: Differences from its reference.
        settings: Settings of the arm and of its reference.
    """
    removed = _REMOVES.match(name.partition("[")[0])
    if removed is None or not changes:
        return
    removed_words = _words(removed.group(1)) & _field_words(*settings)
    words = (_words_of_path(change.path, change.before, change.after) for change in changes)
    is_touched = not removed_words.isdisjoint(set[str]().union(*words))
    is_changed = is_touched and _changes_field(removed.group(1), removed_words, changes)
    if removed_words and not is_changed:
        paths = ", ".join(change.path for change in changes)
        yield (
            f"the name says that it removes {' and '.join(sorted(removed_words))}, but the arm changes "
            f"{paths}; check that two arms were not swapped"
        )


def _changes_field(name: str, fields: set[str], changes: Sequence[Change]) -> bool:
    """Return whether an arm named after a field changes that field itself, not only fields inside it."""
    return name not in fields or any(name in _words(change.path.rsplit(".", 1)[-1]) for change in changes)


def _words_of_path(path: str, *values: Any) -> set[str]:
    words = _words(path)
    for value in values:
        if isinstance(value, Mapping):
            words |= _field_words({"": value})
        elif isinstance(value, str):
            words |= _words(value)
    return words


def _field_words(*settings: Mapping[str, Any]) -> set[str]:
    fields = (path for fields in settings for path, _ in leaves(fields))
    return {word for path in fields for word in _words(path.partition(".")[2] or path)} - {"name"}


def _words(text: str) -> set[str]:
    """Return the words of a name, path or sentence; `max_layers` gives `max_layers`, `max` and `layers`."""
    words = set(re.findall(r"[a-z0-9_]+", text.lower()))
    return words | {part for word in words for part in word.split("_") if part}
