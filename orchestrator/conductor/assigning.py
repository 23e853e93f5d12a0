"""Settings of a trial: its arm's, with an assignment applied."""

from collections.abc import Mapping
from typing import Any

from search_spaces.dimensions import Assignment
from search_spaces.paths import with_value


class NothingAdmitted(Exception):
    """No draw met the constraints of the space."""


def apply(settings: Mapping[str, Any], changes: Assignment) -> dict[str, Any]:
    """A copy of `settings` with the field at each dotted path replaced; what is not on a path is shared.

    Raises ValueError if a path leads through something that is not a mapping.
    """
    changed = dict(settings)
    for path, value in changes.items():
        changed = with_value(changed, path, value)
    return changed
