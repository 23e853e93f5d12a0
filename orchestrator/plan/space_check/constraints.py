"""Check the constraints of a spec: their fields must exist and vary, and some draws must satisfy them."""

from collections.abc import Iterable, Sequence
from itertools import islice, product
from typing import Any

from orchestrator.errors import FaultCode
from orchestrator.plan.arms import CheckedArm
from orchestrator.plan.faults import Faults
from orchestrator.plan.space_check.draws import candidates
from orchestrator.plan.space_check.spaces import ends, related
from orchestrator.spec.types import Search
from search_spaces.algebra import admits, effective
from search_spaces.dimensions import Constraint, Predicate, Rule, Space, Value, is_continuous
from search_spaces.formulas import path_needs_quotes
from search_spaces.paths import MISSING, leaves, lookup, overlap
from search_spaces.predicates import PredicateFailed, predicate_at
from search_spaces.wording import hint, shown

PLACE = ("search", "constraints")
TRIED_MAX = 64
"""Maximum number of combinations for which a formula is evaluated at planning."""
ArmSpace = Sequence[tuple[CheckedArm[Any], Space]]


def check_constraints(search: Search, arms: ArmSpace, faults: Faults) -> None:
    """Add faults for constraints with unknown fields or without numbers, or that always or never hold."""
    for place, constraint in enumerate(search.constraints):
        if problem := _problem(constraint, arms):
            faults.add(problem, *PLACE, place)


def check_predicates(search: Search, faults: Faults) -> None:
    """Add faults for functions of the spec that cannot be imported; raise `PlanError` if there are any."""
    for place, rule in enumerate(search.constraints):
        if isinstance(rule, Predicate):
            try:
                predicate_at(rule.predicate)
            except PredicateFailed as error:
                faults.add(str(error), *PLACE, place, code=FaultCode.CUSTOM_CODE)
                faults.raise_if_any()


def check_known(search: Search, arms: ArmSpace, faults: Faults) -> None:
    """Add faults for constraints with unknown fields or without numbers, for arms with other faults."""
    for place, constraint in enumerate(search.constraints):
        if problem := _unknown_field(constraint, arms):
            faults.add(problem, *PLACE, place)


def _problem(rule: Rule, arms: ArmSpace) -> str | None:
    """Return why `rule` is invalid or has no effect; None if no problem is detected.

    The check of draws reports constraints that never hold.
    """
    if (problem := _unknown_field(rule, arms)) or not isinstance(rule, Constraint):
        return problem
    if all(_always_holds(rule, arm, space) for arm, space in arms):
        return f"{rule}: holds for every draw in every arm: leave it out, or reverse it"
    return None


def _always_holds(rule: Constraint, arm: CheckedArm[Any], space: Space) -> bool:
    """Return whether all tried values of the constraint's fields satisfy it."""
    dimensions = [space[path] for path in rule.paths if path in space.paths]
    if rule.op == "!=" and any(is_continuous(dimension.domain) for dimension in dimensions):
        return True  # a continuous value is never drawn equal to a given value
    paths, settings = [dimension.path for dimension in dimensions], arm.system.settings
    draws = product(*(candidates(dimension.domain) for dimension in dimensions))
    return all(admits(rule, dict(zip(paths, draw, strict=True)), settings) for draw in draws)


def _unknown_field(rule: Rule, arms: ArmSpace) -> str | None:
    for path in rule.paths:
        if not any(_values(path, arm, space) for arm, space in arms):
            fields = dict.fromkeys(path for arm, space in arms for path in (*_paths(arm), *space.paths))
            return f"{rule}: {path} is a field of no arm{_written_otherwise(rule, path, fields)}"
    if isinstance(rule, Predicate):
        return None
    searched_paths = {path for _, space in arms for path in space.paths}
    if not any(overlap(path, searched) for path in rule.paths for searched in searched_paths):
        return (
            f"{rule}: must have a field that the search varies, got none: the condition holds or fails for "
            "all trials alike"
        )
    return _why_not_numeric(rule, arms) if isinstance(rule, Constraint) else _why_undecidable(rule, arms)


def _written_otherwise(rule: Rule, path: str, fields: Iterable[str]) -> str:
    """Return advice on how to write a path that is not a field of any arm."""
    text = str(rule)
    for field in fields:
        if path_needs_quotes(field) and path in field and field in text and f"`{field}`" not in text:
            return f": write the field {field} in backticks, `{field}`"
    if isinstance(rule, Constraint) and path == rule.right and rule.op in ("==", "!="):
        quoted = f"{rule.left} {rule.op} '{path}'"
        return f"; write a text in quotes, {quoted}. {hint(path, related(path, fields))}"
    return f". {hint(path, related(path, fields))}"


def _why_undecidable(rule: Rule, arms: ArmSpace) -> str | None:
    """Return why the values of a formula's fields cannot be compared in some arm; None if they can."""
    for arm, space in arms:
        paths = [path for path in rule.paths if path in space.paths]
        for values in islice(product(*(ends(space[path].domain) for path in paths)), TRIED_MAX):
            try:
                admits(rule, dict(zip(paths, values, strict=True)), arm.system.settings)
            except TypeError as error:
                return str(error)
    return None


def _paths(arm: CheckedArm[Any]) -> Iterable[str]:
    return (path for path, _ in leaves(arm.system.settings))


def _why_not_numeric(constraint: Constraint, arms: ArmSpace) -> str | None:
    values_by_path = {
        path: [value for arm, space in arms for value in _values(path, arm, space)]
        for path in constraint.paths
    }
    is_equality = constraint.op in ("==", "!=")
    if is_equality and not any(_is_number(value) for values in values_by_path.values() for value in values):
        return None
    for path, values in values_by_path.items():
        for value in values:
            if not _is_number(value) and value is not None:
                return f"{constraint}: must compare numbers, and {path} can be {shown(value)}"
        if all(value is None for value in values):
            return (
                f"{constraint}: must compare numbers, and {path} is null in every arm: the constraint "
                "excludes no values"
            )
    return None


def _values(path: str, arm: CheckedArm[Any], space: Space) -> Sequence[Value]:
    """Return the ends of the values that the arm can have at `path`."""
    if path in space.paths:
        return ends(space[path].domain)
    value = lookup(arm.system.settings, path)
    outer = [searched_path for searched_path in space.paths if path.startswith(f"{searched_path}.")]
    params = [{searched_path: end} for searched_path in outer for end in ends(space[searched_path].domain)]
    effective_values = [effective(path, entry, {}) for entry in params]
    return tuple(item for item in (value, *effective_values) if item is not MISSING)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
