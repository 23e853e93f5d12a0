"""From a space and an assignment to settings: which dimensions exist, what is admitted, what is trained."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from search_spaces.dimensions import Constraint, Dimension, Value, among
from search_spaces.paths import MISSING, lookup

_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}


class NothingAdmitted(Exception):
    """No draw met the constraints of the space."""


def exists(dimension: Dimension, assignment: Mapping[str, Value], settings: Mapping[str, Any]) -> bool:
    """Whether every condition of `dimension` holds: a dimension's value first, else the arm's setting."""
    return all(among(_read(each.path, assignment, settings), each.values) for each in dimension.when)


def admits(constraint: Constraint, assignment: Mapping[str, Value], settings: Mapping[str, Any]) -> bool:
    """Whether `constraint` holds. One about a field that is absent or null says nothing and holds."""
    left = _read(constraint.left, assignment, settings)
    right = constraint.right
    bound = _read(right, assignment, settings) if isinstance(right, str) else right
    if left is MISSING or left is None or bound is MISSING or bound is None:
        return True
    return _OPERATORS[constraint.op](left, bound)


def apply(settings: Mapping[str, Any], changes: Mapping[str, Value]) -> dict[str, Any]:
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


def _read(path: str, assignment: Mapping[str, Value], settings: Mapping[str, Any]) -> Any:
    return assignment[path] if path in assignment else lookup(settings, path)
