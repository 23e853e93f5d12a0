"""Complete the points that each arm's search tries first, so that every dimension of the arm has a value.

A point lists differences from the arm's own settings. Fields that an arm does not search are removed from it.
So one list of published settings serves the baseline and all arms. Points that become equal are tried once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isclose
from typing import Any

from orchestrator.errors import HaltsweepError, SpecError
from orchestrator.plan.arms import CheckedArm
from orchestrator.plan.display.format import domain_words
from orchestrator.plan.faults import Faults, Keys
from orchestrator.plan.space_check.draws import SettingsCheck
from orchestrator.plan.space_check.spaces import assign_params, common_space
from orchestrator.plan.types import Arm
from orchestrator.spec.checks import BASELINE
from orchestrator.spec.kinds import FROM_KEY, RESULT_KEY
from orchestrator.spec.load import SpecFile
from orchestrator.spec.types import Search
from search_spaces.algebra import admits, exists
from search_spaces.dimensions import (
    Choice,
    Dimension,
    Domain,
    Fixed,
    Float,
    Powers,
    Value,
    are_equal,
    contains,
)
from search_spaces.grid import finite_values
from search_spaces.paths import MISSING, lookup
from search_spaces.wording import format_value, hint

BestParamsLookup = Callable[[str], Mapping[str, Mapping[str, Value]]]
"""Function that returns the best params of a sweep's search, by arm.

Raises HaltsweepError if the sweep is missing or has no result.
"""
FIRST_KEYS = ("search", "first")


def with_found_points(source: SpecFile, best_params_of: BestParamsLookup) -> SpecFile:
    """Return `source` with the best params of the sweeps that it names.

    The stored spec then contains all first points, even if those sweeps change later.

    Raises:
        SpecError: A named sweep is missing or has no result.
    """
    search = source.spec.search
    if search is None or not any(FROM_KEY in point and RESULT_KEY not in point for point in search.first):
        return source
    points, faults = [], []
    for place, point in enumerate(search.first):
        if FROM_KEY not in point or RESULT_KEY in point:
            points.append(point)
            continue
        try:
            best = {arm: dict(params) for arm, params in best_params_of(point[FROM_KEY]).items()}
            points.append({FROM_KEY: point[FROM_KEY], RESULT_KEY: best})
        except HaltsweepError as error:
            faults.append(source.fault(str(error), *FIRST_KEYS, place))
    if faults:
        raise SpecError(faults)
    search_with_points = search.model_copy(update={"first": tuple(points)})
    return replace(source, spec=source.spec.model_copy(update={"search": search_with_points}))


def check_first(search: Search, faults: Faults) -> None:
    """Add faults of the points in `search.first` that do not depend on the arms."""
    shared_space = common_space(search)
    if len(search.first) > search.trials_per_arm:
        message = f"must be at most trials_per_arm, {search.trials_per_arm}, got {len(search.first)} points"
        faults.add(message, *FIRST_KEYS)
    for place, point in enumerate(search.first):
        if FROM_KEY in point:
            continue
        for path, value in point.items():
            if path not in shared_space.paths:
                suggestion = hint(path, shared_space.paths)
                faults.add(
                    f"sets {path}, which the search does not vary. {suggestion}", *FIRST_KEYS, place, path
                )
            elif _drawable_value(shared_space[path].domain, value) is MISSING:
                _add_value_outside(shared_space[path], value, (*FIRST_KEYS, place), faults)


def with_first_points(
    resolved: Sequence[CheckedArm[Any]],
    arms: Sequence[Arm],
    settings_check: SettingsCheck,
    search: Search,
    faults: Faults,
) -> list[Arm]:
    """Return `arms` with the completed points of `search.first`; note points that cannot be tried."""
    for place, point in enumerate(search.first):
        if FROM_KEY in point and RESULT_KEY not in point:
            message = f"must contain the best params of {point[FROM_KEY]}: `haltsweep plan` looks them up"
            faults.add(message, *FIRST_KEYS, place)
    if faults:
        return list(arms)
    arms_with_points = [
        replace(arm, first=_points(checked, arm, search, settings_check, faults))
        for checked, arm in zip(resolved, arms, strict=True)
    ]
    _note_unused_fields(search, arms_with_points, faults)
    return arms_with_points


def _points(
    checked_arm: CheckedArm[Any], arm: Arm, search: Search, settings_check: SettingsCheck, faults: Faults
) -> tuple[dict[str, Value], ...]:
    """Return the distinct points that the arm tries."""
    points_found: list[dict[str, Value]] = []
    for place, point in enumerate(search.first):
        keys = (*FIRST_KEYS, place)
        full_point = _complete_point(checked_arm, arm, point, keys, faults)
        if full_point is None:
            continue
        if problem := _problem(checked_arm, arm, full_point, settings_check):
            faults.add(problem, *keys, about=("first", *keys, problem.partition(":")[2]))
        if full_point not in points_found:
            points_found.append(full_point)
    return tuple(points_found)


def _complete_point(
    checked_arm: CheckedArm[Any], arm: Arm, point: Mapping[str, Any], keys: Keys, faults: Faults
) -> dict[str, Value] | None:
    """Return a value for every dimension that exists in `arm` at `point`; None if one is out of range."""
    values_of_arm = _values_of_arm(checked_arm, point)
    params: dict[str, Value] = {}
    for dimension in arm.space.dimensions:
        if not exists(dimension, params, arm.settings):
            continue
        path, domain = dimension.path, dimension.domain
        value = values_of_arm[path] if path in values_of_arm else lookup(arm.settings, path)
        domain_value = MISSING if value is MISSING else _drawable_value(domain, value)
        if domain_value is MISSING:
            advice = f"; {arm.name} already has this value: name {path} in the point, or widen the range"
            _add_value_outside(dimension, value, keys, faults, "" if path in values_of_arm else advice)
            return None
        params[path] = domain_value
    return params


def _add_value_outside(dimension: Dimension, value: Any, keys: Keys, faults: Faults, owner: str = "") -> None:
    requirement = f"must be within the search's range of {dimension.path}, {domain_words(dimension.domain)}"
    value_text = "none" if value is MISSING else format_value(value)
    message = f"{requirement}, got {value_text}{owner}"
    faults.add(message, *keys, about=("first", *keys, dimension.path, value_text))


def _values_of_arm(checked_arm: CheckedArm[Any], point: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values that `point` has for the arm.

    For another sweep these are the best params of the arm with the same name, else of its baseline.
    """
    if FROM_KEY not in point:
        return point
    values_of_arms: Mapping[str, Mapping[str, Any]] = point[RESULT_KEY]
    names = (checked_arm.name, checked_arm.request.label, BASELINE)
    return next((values_of_arms[name] for name in names if name in values_of_arms), {})


def _drawable_value(domain: Domain, value: Any) -> Any:  # noqa: PLR0911 - one for each kind
    """Return `value` as a sampler would draw it; `MISSING` if it never would."""
    if not contains(domain, value):
        return MISSING
    match domain:
        case Choice(domain_values):
            return next(item for item in domain_values if are_equal(item, value))
        case Powers():
            return next(item for item in domain.values if _is_near(item, value))
        case Fixed(held):
            return held
        case Float(step=None):
            return float(value)
        case Float():
            return next((item for item in finite_values(domain) if _is_near(item, value)), MISSING)
        case _:
            return value


def _is_near(first: Any, second: Any) -> bool:
    return isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)


def _problem(
    checked_arm: CheckedArm[Any], arm: Arm, point: Mapping[str, Value], settings_check: SettingsCheck
) -> str | None:
    """Return the constraint that `point` violates, or why it cannot be trained; None if it can be tried."""
    words = ", ".join(f"{path} = {format_value(value)}" for path, value in point.items())
    for constraint in arm.space.constraints:
        if not admits(constraint, point, arm.settings):
            return f"{arm.name} tries {words}: must satisfy {constraint}"
    settings = assign_params(checked_arm.system.settings, point)
    problems = settings_check.parse(settings) if settings is not None else []
    if isinstance(problems, list) and problems:
        return f"{arm.name} cannot be trained with {words}: {problems[0].message}"
    return None


def _note_unused_fields(search: Search, arms: Sequence[Arm], faults: Faults) -> None:
    """Add faults for fields of a point that no arm searches under the conditions of the point."""
    for place, point in enumerate(search.first):
        for path in point if FROM_KEY not in point and not faults else ():
            if not any(path in params for arm in arms for params in arm.first):
                reason = "which no arm searches where the rest of the point holds"
                faults.add(f"sets {path}, {reason}: leave it out", *FIRST_KEYS, place, path)
