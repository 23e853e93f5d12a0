"""Determine the search space of each arm, and check spaces for grid search."""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from orchestrator.errors import FaultCode
from orchestrator.plan.arms import CheckedArm
from orchestrator.plan.display.format import domain_words
from orchestrator.plan.faults import Faults, Keys
from orchestrator.plan.planned_trials import is_grid
from orchestrator.search import space_catalog
from orchestrator.spec.types import Search, Spec
from search_spaces.algebra import drop_dimensions, exists, find_parent, merge
from search_spaces.dimensions import (
    Assignment,
    Choice,
    Dimension,
    Domain,
    Fixed,
    Float,
    Powers,
    Space,
    Value,
    contains,
    max_value,
)
from search_spaces.grid import COUNTED_MAX, count_combinations, is_finite
from search_spaces.paths import MISSING, leaves, lookup, with_values
from search_spaces.wording import format_value, hint


def common_space(search: Search) -> Space:
    """Return the search space of an arm that drops nothing."""
    spaces = (space_catalog.load(name) for name in search.spaces)
    return merge(*spaces, Space(search.also, search.constraints))


def arm_space(arm: CheckedArm[Any], search: Search, faults: Faults) -> Space:
    """Return the dimensions that exist in `arm`; add faults for those that it lacks but does not drop."""
    kept_space, settings = drop_dimensions(common_space(search), arm.request.drop), arm.system.settings
    unavailable = []
    for dimension in kept_space.dimensions:
        path, params = dimension.path, enabling_params(dimension, kept_space, settings)
        if params is not None and lookup(assign_params(settings, params) or {}, path) is not MISSING:
            continue
        unavailable.append(path)
        if params is not None and arm.request.is_baseline:
            message, keys = _missing_field_text(arm, path), dimension_keys(path, search)
            faults.add(message, *keys, about=("lacks", path), code=FaultCode.UNKNOWN_FIELD)
        elif params is not None and not faults.has("lacks", path):
            remedy = f". Add {path} to the arm's drop"
            faults.add(
                _missing_field_text(arm, path) + remedy,
                "arms",
                arm.request.label,
                code=FaultCode.UNKNOWN_FIELD,
            )
    return drop_dimensions(kept_space, unavailable)


def enabling_params(
    dimension: Dimension, space: Space, settings: Mapping[str, Any]
) -> dict[str, Value] | None:
    """Return values of other dimensions with which `dimension` exists in an arm with `settings`.

    The values of conditions and the ends of ranges are tried. None if `dimension` exists with none of them.
    """
    involved = _ancestors(dimension, space)
    conditions = [condition for entry in (*involved, dimension) for condition in entry.when]
    named = [value for condition in conditions for value in condition.values]
    domains = [ancestor.domain for ancestor in involved]
    choices = [
        [*(value for value in named if may_draw(domain, value)), *range_ends(domain)] for domain in domains
    ]
    for values in product(*choices):
        params: dict[str, Value] = {}
        for ancestor, value in zip(involved, values, strict=True):
            if exists(ancestor, params, settings):
                params[ancestor.path] = value
        if exists(dimension, params, settings):
            return params
    return None


def may_draw(domain: Domain, value: Value) -> bool:
    """Return whether a search can draw exactly this value; false for continuous ranges."""
    continuous = isinstance(domain, Float) and domain.step is None
    return contains(domain, value) and not continuous


def _ancestors(dimension: Dimension, space: Space) -> list[Dimension]:
    """Return the dimensions that determine whether `dimension` exists, in order of dependence."""
    needed_paths, waiting = set[str](), [dimension]
    while waiting:
        for path in (condition.path for condition in waiting.pop().when):
            parent = path if path in space.paths else find_parent(path, space.paths)
            if parent is not None and parent not in needed_paths:
                needed_paths.add(parent)
                waiting.append(space[parent])
    return [dimension for dimension in space.dimensions if dimension.path in needed_paths]


def _missing_field_text(arm: CheckedArm[Any], path: str) -> str:
    settings = arm.system.settings
    parents = path.split(".")
    for length in range(2, len(parents)):
        parent = ".".join(parents[:length])
        value = lookup(settings, parent)
        if value is not MISSING and not isinstance(value, Mapping):
            return f"{arm.name} has no {path}: its {parent} is {format_value(value)}"
    fields = sibling_fields(path, [field for field, _ in leaves(settings)])
    return f"{arm.name} has no field {path}. {hint(path, fields)}"


def sibling_fields(path: str, fields: Iterable[str]) -> list[str]:
    """Return the fields in the same part of the settings as `path`; all fields if there is no such part."""
    root, every = path.partition(".")[0], list(fields)
    own_fields = [field for field in every if field.partition(".")[0] == root]
    return own_fields if "." in path and own_fields else every


def dimension_keys(path: str, search: Search) -> Keys:
    """Return the place in the spec that defines the dimension at `path`."""
    if any(dimension.path == path for dimension in search.also):
        return ("search", "also", path)
    places = [place for place, name in enumerate(search.spaces) if path in space_catalog.load(name).paths]
    return ("search", "spaces", places[-1])


def range_ends(domain: Domain) -> tuple[Value, ...]:
    """Return the least and greatest value of a range, every value of a choice, or the fixed value."""
    match domain:
        case Choice(values):
            return values
        case Powers():
            return (domain.values[0], domain.values[-1])
        case Fixed(value):
            return (value,)
        case _:
            return (domain.low, max_value(domain))


def assign_params(settings: Mapping[str, Any], assignment: Assignment) -> dict[str, Any] | None:
    """Return `settings` with the assignment; None if one of its paths does not exist."""
    try:
        return with_values(settings, assignment)
    except ValueError:
        return None


def check_grid(arm: CheckedArm[Any], space: Space, spec: Spec, search: Search, faults: Faults) -> None:
    """Add a fault if the spec requests grid search and the space of `arm` is unsuitable for it."""
    if not is_grid(search.sampler):
        return
    endless = [dimension for dimension in space.dimensions if not is_finite(dimension.domain)]
    for dimension in endless:
        message = (
            "must be a choice, whole numbers or a float with a step to be searched by grid, got "
            f"{domain_words(dimension.domain)}: list values, give a step, or choose another sampler"
        )
        faults.add(message, *dimension_keys(dimension.path, search), about=("grid", dimension.path))
    if endless:
        return
    size = count_combinations(space, arm.system.settings)
    if size > COUNTED_MAX:
        message = (
            f"must have at most {COUNTED_MAX:,} combinations to be tried one by one, got {size:,} in "
            f"{arm.name}: leave values out, or choose another sampler"
        )
        faults.add(message, "search", "sampler", about=("grid",))
    elif size > search.trials_per_arm:
        message = (
            f"must be at least {size:,}, the combinations that {arm.name} has, got "
            f"{search.trials_per_arm:,}: a grid is tried as a whole"
        )
        faults.add(message, "search", "trials_per_arm", about=("grid",))
    elif spec.confirm is not None and spec.confirm.best > size:
        message = f"must be at most {size:,}, the combinations that {arm.name} has, got {spec.confirm.best}"
        faults.add(message, "confirm", "best", about=("grid",))
