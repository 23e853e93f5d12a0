"""Whether a constraint follows from others and from ranges, so that it never decides what is drawn.

All of them bound the difference of two numbers, one of which may be zero: what follows is the shortest path.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil

from search_spaces.dimensions import Constraint

ZERO = ""
"""What a number is the difference to."""


@dataclass(frozen=True, slots=True, order=True)
class Bound:
    """The greatest that a difference can be; `strict` bounds come before others of the same value."""

    most: float
    loose: bool = True
    """Whether it can be as great as that."""

    def __add__(self, other: "Bound") -> "Bound":
        return Bound(self.most + other.most, self.loose and other.loose)


@dataclass(frozen=True, slots=True)
class Field:
    """What a constraint can name: the range of its values."""

    low: float
    high: float
    whole: bool
    """Whether all values are whole numbers."""
    always: bool = True
    """Whether every draw has it: through one that some lack nothing follows."""


def follows(constraint: Constraint, others: Sequence[Constraint], fields: Mapping[str, Field]) -> bool:
    """Whether all that is drawn from `fields` and keeps to `others` keeps to `constraint`.

    `fields` has every path that is named; a constraint of another one is left out.
    """
    if not _known(constraint, fields):
        return False
    bounds = _closed([each for each in others if _known(each, fields)], fields, _sides(constraint)[:2])
    left, right, _ = _sides(constraint)
    below, above = bounds[left, right], bounds[right, left]
    shift = 0.0 if isinstance(constraint.right, str) else float(constraint.right)
    less, more = Bound(below.most - shift, below.loose), Bound(above.most + shift, above.loose)
    none = Bound(0.0)
    return {
        "<": less < none,
        "<=": less <= none,
        ">": more < none,
        ">=": more <= none,
        "==": less <= none >= more,
        "!=": less < none or more < none,
    }[constraint.op]


def _sides(constraint: Constraint) -> tuple[str, str, float]:
    """Both fields, and how much the first may be above the second; zero in place of a number."""
    if isinstance(constraint.right, str):
        return constraint.left, constraint.right, 0.0
    return constraint.left, ZERO, float(constraint.right)


def _known(constraint: Constraint, fields: Mapping[str, Field]) -> bool:
    return all(side == ZERO or side in fields for side in _sides(constraint)[:2])


def _closed(
    constraints: Iterable[Constraint], fields: Mapping[str, Field], ends: tuple[str, str]
) -> dict[tuple[str, str], Bound]:
    """The least bound of every difference that ranges and `constraints` leave."""
    nodes = [ZERO, *fields]
    found = {
        (one, other): Bound(0.0 if one == other else float("inf")) for one, other in product(nodes, nodes)
    }

    def bound(one: str, other: str, most: float, *, loose: bool) -> None:
        whole = all(each == ZERO or fields[each].whole for each in (one, other))
        made = Bound(float(ceil(most) - 1)) if whole and not loose else Bound(most, loose)
        found[one, other] = min(found[one, other], made)

    for name, field in fields.items():
        bound(name, ZERO, field.high, loose=True)
        bound(ZERO, name, -field.low, loose=True)
    for each in constraints:
        left, right, most = _sides(each)
        if each.op in ("<", "<=", "=="):
            bound(left, right, most, loose=each.op != "<")
        if each.op in (">", ">=", "=="):
            bound(right, left, -most, loose=each.op != ">")
    for through in (name for name in nodes if name in ends or name == ZERO or fields[name].always):
        for one, other in product(nodes, nodes):
            found[one, other] = min(found[one, other], found[one, through] + found[through, other])
    return found
