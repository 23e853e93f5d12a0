"""Check the constraints of a spec: their fields must exist and vary, and some draws must satisfy them."""

from collections.abc import Iterable, Sequence
from itertools import islice, product
from typing import Any

from orchestrator.errors import FaultCode
from orchestrator.plan.arms import CheckedArm
from orchestrator.plan.faults import Faults
from orchestrator.plan.space_check.draws import candidates
from orchestrator.plan.space_check.spaces import range_ends, sibling_fields
from orchestrator.spec.types import Search
from search_spaces.algebra import admits, value_at
from search_spaces.dimensions import Constraint, Predicate, Rule, Space
from search_spaces.formulas import path_needs_quotes
from search_spaces.grid import is_finite
from search_spaces.paths import MISSING, leaves, overlap
from search_spaces.predicates import PredicateFailed, load_predicate
from search_spaces.wording import hint

PLACE = ("search", "constraints")
TRIED_MAX = 10_000
"""Maximum number of combinations of values of an arm for which a rule is evaluated."""
ArmSpace = Sequence[tuple[CheckedArm[Any], Space]]


def check_constraints(search: Search, arms: ArmSpace, faults: Faults, *, has_effect: bool = True) -> None:
    """Add faults for constraints with unknown fields, or whose values cannot be compared.

    Args:
        search: Search settings of the spec.
        arms: All arms with their search spaces.
        faults: Collects the problems.
        has_effect: Whether to also add faults for constraints that always hold; draws show those that never
            hold.
    """
    for place, rule in enumerate(search.constraints):
        if isinstance(rule, Predicate):  # only draws show what a function does
            continue
        if problem := _unknown_field(rule, arms) or _evaluation_problem(rule, arms, has_effect=has_effect):
            faults.add(problem, *PLACE, place)


def check_predicates(search: Search, faults: Faults) -> None:
    """Add faults for functions of the spec that cannot be imported; raise `PlanError` if there are any."""
    for place, rule in enumerate(search.constraints):
        if isinstance(rule, Predicate):
            try:
                load_predicate(rule.predicate)
            except PredicateFailed as error:
                faults.add(str(error), *PLACE, place, code=FaultCode.CUSTOM_CODE)
                faults.raise_if_any()


def _unknown_field(rule: Rule, arms: ArmSpace) -> str | None:
    """Return which field of `rule` no arm has, or that no field is searched; None if neither."""
    for path in rule.paths:
        if not any(_has_field(path, arm, space) for arm, space in arms):
            fields = dict.fromkeys(
                path for arm, space in arms for path in (*dict(leaves(arm.system.settings)), *space.paths)
            )
            return f"{rule}: no arm has the field {path}{_path_advice(rule, path, fields)}"
    searched_paths = {path for _, space in arms for path in space.paths}
    if not any(overlap(path, searched) for path in rule.paths for searched in searched_paths):
        return (
            f"{rule}: must have a field that the search varies, got none: the condition has the same "
            "result for all trials"
        )
    return None


def _evaluation_problem(rule: Rule, arms: ArmSpace, *, has_effect: bool) -> str | None:
    """Return why the values of a rule cannot be compared, or that it always holds; None if neither."""
    always_holds = has_effect and isinstance(rule, Constraint)
    for arm, space in arms:
        dimensions = [space[path] for path in rule.paths if path in space.paths]
        is_continuous = any(not is_finite(dimension.domain) for dimension in dimensions)
        draws = list(islice(product(*(candidates(entry.domain) for entry in dimensions)), TRIED_MAX))
        always_holds &= len(draws) < TRIED_MAX
        for values in draws:
            params = {dimension.path: value for dimension, value in zip(dimensions, values, strict=True)}
            try:
                holds = admits(rule, params, arm.system.settings)
            except TypeError as error:
                return str(error)
            # A continuous value is never drawn equal to another one.
            always_holds &= holds or (isinstance(rule, Constraint) and rule.op == "!=" and is_continuous)
    if always_holds:
        return f"{rule}: is always true in every arm: remove it, or negate it"
    return None


def _has_field(path: str, arm: CheckedArm[Any], space: Space) -> bool:
    """Return whether the arm has the field, perhaps within a mapping that its search draws."""
    draws = ({dimension.path: end} for dimension in space.dimensions for end in range_ends(dimension.domain))
    return any(value_at(path, draw, arm.system.settings) is not MISSING for draw in ({}, *draws))


def _path_advice(rule: Rule, path: str, fields: Iterable[str]) -> str:
    """Return advice on how to write a path that is not a field of any arm."""
    text = str(rule)
    for field in fields:
        if path_needs_quotes(field) and path in field and field in text and f"`{field}`" not in text:
            return f": write the field {field} in backticks, `{field}`"
    if isinstance(rule, Constraint) and path == rule.right and rule.op in ("==", "!="):
        quoted = f"{rule.left} {rule.op} '{path}'"
        return f"; write a text in quotes, {quoted}. {hint(path, sibling_fields(path, fields))}"
    return f". {hint(path, sibling_fields(path, fields))}"
