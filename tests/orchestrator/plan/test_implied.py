"""What follows from constraints and ranges, against all that can be drawn."""

import operator
from itertools import combinations, product

import pytest

from orchestrator.plan.implied import Field, follows
from search_spaces.dimensions import OPERATORS, Constraint

COMPARE = {"<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">=": operator.ge}
COMPARE[">"] = operator.gt
RANGES = {"model.a": (0, 3), "model.b": (1, 4), "model.c": (2, 2)}
WHOLE = {path: Field(*ends, whole=True) for path, ends in RANGES.items()}
SIDES = (
    ("model.a", "model.b"),
    ("model.b", "model.a"),
    ("model.b", "model.c"),
    ("model.a", 2),
    ("model.b", 3),
)
ALL = [Constraint(left, op, right) for (left, right), op in product(SIDES, OPERATORS)]


def holds(constraint: Constraint, drawn: dict[str, int]) -> bool:
    right = drawn[constraint.right] if isinstance(constraint.right, str) else constraint.right
    return COMPARE[constraint.op](drawn[constraint.left], right)


@pytest.mark.parametrize("others", [*combinations(ALL, 1), *list(combinations(ALL, 2))[::9]], ids=repr)
def test_what_is_said_to_follow_holds_of_all_that_is_drawn(others: tuple[Constraint, ...]) -> None:
    values = product(*(range(low, high + 1) for low, high in RANGES.values()))
    drawn = [dict(zip(RANGES, each, strict=True)) for each in values]
    admitted = [each for each in drawn if all(holds(other, each) for other in others)]
    unequal = any(other.op == "!=" for other in others)
    for constraint in ALL:
        always = all(holds(constraint, each) for each in admitted)
        said = follows(constraint, others, WHOLE)
        assert always or not said
        # Where something unequal is left out, less is known; so it is of two ranges that meet in no order.
        if admitted and not unequal and constraint.op != "!=":
            assert said == always, constraint


def test_real_numbers_leave_more_room_than_whole_ones() -> None:
    real = {path: Field(*ends, whole=False) for path, ends in RANGES.items()}
    strict, loose = Constraint("model.a", "<", 2), Constraint("model.a", "<=", 1)
    assert follows(loose, [strict], WHOLE)
    assert not follows(loose, [strict], real)
    assert follows(strict, [loose], real)


def test_through_what_some_draws_lack_nothing_follows() -> None:
    chain = [Constraint("model.a", "<", "model.c"), Constraint("model.c", "<", "model.b")]
    wide = {path: Field(0, 9, whole=True) for path in RANGES}
    assert follows(Constraint("model.a", "<", "model.b"), chain, wide)
    some = {**wide, "model.c": Field(0, 9, whole=True, always=False)}
    assert not follows(Constraint("model.a", "<", "model.b"), chain, some)
    assert not follows(Constraint("model.a", "<", "model.d"), chain, wide)
