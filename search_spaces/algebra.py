"""Operations on search spaces: check conditions and constraints, merge spaces, order dimensions."""

import operator
from collections.abc import Callable, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from search_spaces.dimensions import (
    Assignment,
    Dimension,
    Formula,
    Predicate,
    Rule,
    Space,
    are_equal,
    is_among,
)
from search_spaces.formulas import holds
from search_spaces.paths import MISSING, lookup, with_values
from search_spaces.predicates import admits_settings


class CyclicSpace(ValueError):
    """Error for dimensions that depend on each other in a cycle, so that none can be drawn first."""


def value_at(path: str, assignment: Assignment, settings: Mapping[str, Any]) -> Any:
    """Return the value of a trial at `path`: from the assignment, else from the settings, else `MISSING`."""
    if path in assignment:
        return assignment[path]
    if (outer := find_parent(path, assignment)) is not None:
        return lookup({outer: assignment[outer]}, path)
    return lookup(settings, path)


def find_parent(path: str, known_names: Iterable[str]) -> str | None:
    """Return a path in `known_names` that contains the field at `path`; None if no path does."""
    return next((parent for parent in known_names if path.startswith(f"{parent}.")), None)


def exists(dimension: Dimension, assignment: Assignment, settings: Mapping[str, Any]) -> bool:
    """Return whether every condition of `dimension` holds.

    Args:
        dimension: The dimension to check.
        assignment: Values by path; it must already contain every dimension that `dimension` depends on.
        settings: Settings of the arm, for fields that are not in `assignment`.
    """
    return all(
        is_among(value_at(condition.path, assignment, settings), condition.values)
        for condition in dimension.when
    )


def admits(rule: Rule, assignment: Assignment, settings: Mapping[str, Any]) -> bool:
    """Return whether `rule` holds.

    A rule also holds if one of its fields is missing, or is null instead of a number.

    Raises:
        TypeError: The values cannot be compared, such as a number and a text.
        PredicateFailed: The function of a `Predicate` fails or returns no truth value.
    """
    if isinstance(rule, Predicate):
        return admits_settings(str(rule), rule.predicate, with_values(settings, assignment), rule.trainable)
    if isinstance(rule, Formula):
        return holds(rule.formula, lambda path: value_at(path, assignment, settings))
    left = value_at(rule.left, assignment, settings)
    right = rule.right
    if isinstance(right, str):
        right = value_at(right, assignment, settings)
    if left in (MISSING, None) or right in (MISSING, None):
        return True
    try:
        return _COMPARE[rule.op](left, right)
    except TypeError as error:
        raise TypeError(f"{rule} cannot be evaluated, got {left!r} and {right!r}") from error


def merge(*spaces: Space) -> Space:
    """Return a space with the dimensions and constraints of all `spaces`.

    If two dimensions have the same path, the later one replaces the earlier one.

    Raises:
        CyclicSpace: The conditions of the merged dimensions form a cycle.
    """
    by_path = {dimension.path: dimension for space in spaces for dimension in space.dimensions}
    constraints = dict.fromkeys(constraint for space in spaces for constraint in space.constraints)
    return Space(order_dimensions(by_path.values()), tuple(constraints))


def drop_dimensions(space: Space, paths: Iterable[str]) -> Space:
    """Return a copy of `space` that omits the dimensions at `paths`."""
    removed = frozenset(paths)
    remaining_dimensions = tuple(dimension for dimension in space.dimensions if dimension.path not in removed)
    return Space(remaining_dimensions, space.constraints)


def order_dimensions(dimensions: Iterable[Dimension]) -> tuple[Dimension, ...]:
    """Sort `dimensions`: each follows all dimensions that it depends on; otherwise the order is kept.

    Raises:
        CyclicSpace: The conditions form a cycle.
    """
    by_path = {dimension.path: dimension for dimension in dimensions}
    sorter = TopologicalSorter(
        {
            path: [
                needed
                for condition in dimension.when
                if (
                    needed := condition.path
                    if condition.path in by_path
                    else find_parent(condition.path, by_path)
                )
            ]
            for path, dimension in by_path.items()
        }
    )
    try:
        sorter.prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise CyclicSpace(f"conditions must not form a cycle, got {circle}") from error
    rank = {path: position for position, path in enumerate(by_path)}
    order: list[Dimension] = []
    ready_paths = set(sorter.get_ready())
    while ready_paths:
        path = min(ready_paths, key=rank.__getitem__)
        ready_paths.remove(path)
        order.append(by_path[path])
        sorter.done(path)
        ready_paths.update(sorter.get_ready())
    return tuple(order)


_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": are_equal,
    "!=": lambda left, right: not are_equal(left, right),
    ">=": operator.ge,
    ">": operator.gt,
}
