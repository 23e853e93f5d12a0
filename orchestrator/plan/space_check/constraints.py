"""Check the constraints of a spec: their fields must exist and vary, and some draws must satisfy them."""

from collections.abc import Iterable, Sequence
from itertools import islice, product
from typing import Any

from orchestrator.plan.arms import CheckedArm
from orchestrator.plan.faults import Faults
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
Searched = Sequence[tuple[CheckedArm[Any], Space]]


def check_constraints(search: Search, arms: Searched, faults: Faults) -> None:
    """Note constraints with unknown fields or without numbers, and constraints that always or never hold."""
    for place, constraint in enumerate(search.constraints):
        if problem := _problem(constraint, arms):
            faults.add(problem, *PLACE, place)


def check_predicates(search: Search, faults: Faults) -> None:
    """Note functions of the spec that cannot be imported; then raise `PlanError` with all faults."""
    for place, rule in enumerate(search.constraints):
        if isinstance(rule, Predicate):
            try:
                predicate_at(rule.predicate)
            except PredicateFailed as error:
                faults.add(str(error), *PLACE, place)
                faults.raise_if_any()


def check_known(search: Search, arms: Searched, faults: Faults) -> None:
    """Note constraints with unknown fields or without numbers, for arms that have other faults."""
    for place, constraint in enumerate(search.constraints):
        if problem := _unknown(constraint, arms):
            faults.add(problem, *PLACE, place)


def _problem(rule: Rule, arms: Searched) -> str | None:
    """Return why `rule` is invalid or has no effect; None if no problem is detected."""
    return _unknown(rule, arms) or (_idle(rule, arms) if isinstance(rule, Constraint) else None)


def _unknown(rule: Rule, arms: Searched) -> str | None:
    fields = dict.fromkeys(each for arm, space in arms for each in (*_paths(arm), *space.paths))
    for path in rule.paths:
        if not any(_values(path, arm, space) for arm, space in arms):
            return f"{rule}: {path} is a field of no arm{_written_otherwise(rule, path, fields)}"
    if isinstance(rule, Predicate):
        return None
    if not any(overlap(path, each) for path in rule.paths for _, space in arms for each in space.paths):
        return f"{rule}: must have a field that the search varies, got none: it decides nothing"
    return _no_numbers(rule, arms) if isinstance(rule, Constraint) else _undecidable(rule, arms)


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


def _undecidable(rule: Rule, arms: Searched) -> str | None:
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


def _no_numbers(constraint: Constraint, arms: Searched) -> str | None:
    kinds = [value for path in constraint.paths for arm, space in arms for value in _values(path, arm, space)]
    if constraint.op in ("==", "!=") and not any(map(_is_number, kinds)):
        return None
    for path in constraint.paths:
        values = [value for arm, space in arms for value in _values(path, arm, space)]
        wrong = [each for each in values if not _is_number(each) and each is not None]
        if wrong:
            return f"{constraint}: must compare numbers, and {path} can be {shown(wrong[0])}"
        if all(each is None for each in values):
            return f"{constraint}: must compare numbers, and {path} is null in every arm: it decides nothing"
    return None


def _idle(constraint: Constraint, arms: Searched) -> str | None:
    """Return why a constraint can never hold in an arm, or always holds in all arms; None otherwise."""
    always = []
    if constraint.left == constraint.right:  # the check of draws reports constraints that never hold
        return f"{constraint}: holds whatever is drawn, in every arm: leave it out, or name another field"
    for arm, space in arms:
        left = _range(constraint.left, arm, space)
        right = _range(constraint.right, arm, space)
        if left is None or right is None:
            continue
        words = f"{constraint.left} is {_words(left)} there and {constraint.right} {_words(right)}"
        if isinstance(constraint.right, int | float):
            words = f"{constraint.left} is {_words(left)} there"
        if _never(constraint.op, left, right):
            return f"{constraint}: can never hold in {arm.name}: {words}"
        real = any(path in space.paths and is_continuous(space[path].domain) for path in constraint.paths)
        # A continuous value is never drawn equal to a given value.
        always.append(_never(_OPPOSITE[constraint.op], left, right) or (constraint.op == "!=" and real))
    if always and all(always):
        return f"{constraint}: holds whatever is drawn, in every arm: leave it out, or turn it round"
    return None


Span = tuple[float, float]
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def _never(op: str, left: Span, right: Span) -> bool:
    """Return whether the comparison `op` fails for all pairs of values from the two ranges."""
    match op:
        case "<":
            return left[0] >= right[1]
        case "<=":
            return left[0] > right[1]
        case ">":
            return left[1] <= right[0]
        case ">=":
            return left[1] < right[0]
        case "==":
            return left[1] < right[0] or right[1] < left[0]
        case _:
            return left[0] == left[1] == right[0] == right[1]


def _range(side: str | float, arm: CheckedArm[Any], space: Space) -> Span | None:
    """Return the least and greatest value of a side; None if the arm has no number there."""
    found = [side] if not isinstance(side, str) else _values(side, arm, space)
    numbers = [float(each) for each in found if isinstance(each, int | float) and _is_number(each)]
    return (min(numbers), max(numbers)) if numbers else None


def _values(path: str, arm: CheckedArm[Any], space: Space) -> Sequence[Value]:
    """Return the ends of the values that the arm can have at `path`."""
    if path in space.paths:
        return ends(space[path].domain)
    value = lookup(arm.system.settings, path)
    outer = [each for each in space.paths if path.startswith(f"{each}.")]
    drawn = [effective(path, {each: value}, {}) for each in outer for value in ends(space[each].domain)]
    return tuple(each for each in (value, *drawn) if each is not MISSING)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _words(span: Span) -> str:
    return f"{span[0]:g}" if span[0] == span[1] else f"{span[0]:g} to {span[1]:g}"
