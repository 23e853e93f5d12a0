"""What a spec's own constraints must be: of fields that are there and vary, neither impossible nor idle."""

from collections.abc import Collection, Sequence
from typing import Any

from orchestrator.plan.arms import CheckedArm
from orchestrator.plan.faults import Faults
from orchestrator.plan.implied import Field, follows
from orchestrator.plan.spaces import ends, related
from orchestrator.spec.types import Search
from search_spaces.dimensions import Constraint, Space, Value, is_real
from search_spaces.paths import MISSING, leaves, lookup
from search_spaces.wording import hint, shown

PLACE = ("search", "constraints")
Searched = Sequence[tuple[CheckedArm[Any], Space]]


def check_constraints(search: Search, arms: Searched, faults: Faults) -> None:
    """Note the constraints of the spec that name no field, no number, or that decide nothing."""
    sound: list[tuple[int, Constraint]] = []
    for place, constraint in enumerate(search.constraints):
        if problem := _unknown(constraint, arms) or _idle(constraint, arms):
            faults.add(problem, *PLACE, place)
        else:
            sound.append((place, constraint))
    known = set[str]()
    for place, constraint in reversed(sound):  # of two that say the same the later one is reported
        if _implied(constraint, arms, known):
            known.add(str(constraint))
            faults.add(
                f"{constraint}: follows from the others and the ranges in every arm, so that it decides "
                "nothing: leave it out",
                *PLACE,
                place,
            )


def check_known(search: Search, arms: Searched, faults: Faults) -> None:
    """Note the constraints of the spec that name no field or no number, where arms have other faults."""
    for place, constraint in enumerate(search.constraints):
        if problem := _unknown(constraint, arms):
            faults.add(problem, *PLACE, place)


def _unknown(constraint: Constraint, arms: Searched) -> str | None:
    sides = _sides(constraint)
    for path in sides:
        values = [value for arm, space in arms for value in _values(path, arm, space)]
        if not values:
            fields = dict.fromkeys(each for arm, _ in arms for each, _ in leaves(arm.system.settings))
            return f"{constraint}: {path} is a field of no arm. {hint(path, related(path, fields))}"
        wrong = [each for each in values if not _is_number(each) and each is not None]
        if wrong:
            return f"{constraint}: must compare numbers, and {path} can be {shown(wrong[0])}"
        if all(each is None for each in values):
            return f"{constraint}: must compare numbers, and {path} is null in every arm: it decides nothing"
    if not any(path in space.paths for path in sides for _, space in arms):
        return f"{constraint}: must have a field that the search varies, got none: it decides nothing"
    return None


def _sides(constraint: Constraint) -> list[str]:
    """The fields that are compared."""
    return [each for each in (constraint.left, constraint.right) if isinstance(each, str)]


def _idle(constraint: Constraint, arms: Searched) -> str | None:
    """Why a constraint can never hold in an arm, or holds in all of them whatever is drawn."""
    always = []
    if constraint.left == constraint.right:  # what can never hold is reported of what is drawn
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
        real = any(path in space.paths and is_real(space[path].domain) for path in _sides(constraint))
        # What is never drawn twice is never drawn equal to what is named.
        always.append(_never(_OPPOSITE[constraint.op], left, right) or (constraint.op == "!=" and real))
    if always and all(always):
        return f"{constraint}: holds whatever is drawn, in every arm: leave it out, or turn it round"
    return None


def _implied(constraint: Constraint, arms: Searched, known: Collection[str]) -> bool:
    """Whether a constraint follows from those that are not `known` to, in every arm that has its fields."""
    found = []
    for arm, space in arms:
        if _range(constraint.left, arm, space) is None or _range(constraint.right, arm, space) is None:
            continue
        others = [each for each in space.constraints if str(each) not in {*known, str(constraint)}]
        sides = (side for each in (constraint, *others) for side in (each.left, each.right))
        paths = dict.fromkeys(side for side in sides if isinstance(side, str))
        fields = {path: field for path in paths if (field := _field(path, arm, space)) is not None}
        found.append(follows(constraint, others, fields))
    return bool(found) and all(found)


def _field(path: str, arm: CheckedArm[Any], space: Space) -> Field | None:
    """What an arm can have at `path`; None where that is no number, or may be null."""
    values = _values(path, arm, space)
    if not values or any(each is None or not _is_number(each) for each in values):
        return None
    span = _range(path, arm, space)
    assert span is not None
    dimension = space[path] if path in space.paths else None
    return Field(
        *span, all(isinstance(each, int) for each in values), dimension is None or not dimension.when
    )


Span = tuple[float, float]
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def _never(op: str, left: Span, right: Span) -> bool:
    """Whether no two values of these ranges compare so."""
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
    """Least and greatest value of a side; None where the arm has none."""
    found = [side] if not isinstance(side, str) else _values(side, arm, space)
    numbers = [float(each) for each in found if _is_number(each) and each is not None]
    return (min(numbers), max(numbers)) if numbers else None


def _values(path: str, arm: CheckedArm[Any], space: Space) -> Sequence[Value]:
    """The ends of what the arm can have at `path`."""
    if path in space.paths:
        return ends(space[path].domain)
    value = lookup(arm.system.settings, path)
    return () if value is MISSING else (value,)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _words(span: Span) -> str:
    return f"{span[0]:g}" if span[0] == span[1] else f"{span[0]:g} to {span[1]:g}"
