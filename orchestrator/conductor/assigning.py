"""Settings of a trial: its arm's, with an assignment applied."""

from collections.abc import Mapping
from typing import Any

from search_spaces.dimensions import Assignment


class NothingAdmitted(Exception):
    """No draw met the constraints of the space."""


def apply(settings: Mapping[str, Any], changes: Assignment) -> dict[str, Any]:
    """A copy of `settings` with the field at each dotted path replaced; what is not on a path is shared.

    Raises ValueError if a path leads through something that is not a mapping.
    """
    changed = dict(settings)
    for path, value in changes.items():
        *parents, last = path.split(".")
        node = changed
        for parent in parents:
            inner = node.get(parent)
            if not isinstance(inner, Mapping):
                raise ValueError(  # noqa: TRY004 (of a value the spec gives)
                    f"{path} must lead through mappings, got {parent}={inner!r}; drop the dimension"
                )
            node[parent] = dict(inner)
            node = node[parent]
        node[last] = value
    return changed
