"""What each arm's search may vary, and the proof that no draw of it can be refused by the trainables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from math import prod
from typing import Any

import torch

from orchestrator.plan.faults import Faults, Keys
from orchestrator.plan.resolve import Resolved
from orchestrator.plan.settings import checked, leaves
from orchestrator.spec.types import Search
from search_spaces import catalog
from search_spaces.algebra import admits, exists, merge, without
from search_spaces.dimensions import Assignment, Choice, Dimension, Domain, Fixed, Space, Value
from search_spaces.paths import MISSING, lookup, with_value
from search_spaces.wording import hint, shown
from trainables.assembly import build_model

CORNERS_MAX = 256
"""Up to so many corners of a space are all tried; of a larger one, those of every two dimensions."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The space of an arm."""

    space: Space = field(default_factory=Space)
    dropped: tuple[str, ...] = ()
    """Dimensions of the common space that this one lacks."""


def common_space(search: Search) -> Space:
    """What is searched in an arm that lacks nothing."""
    return merge(*(catalog.load(name) for name in search.spaces), Space(search.also))


def arm_space(arm: Resolved, search: Search, faults: Faults) -> Searched:
    """The dimensions that exist in `arm`; those it wrongly lacks go to `faults`."""
    common = common_space(search)
    kept = without(common, arm.draft.drop)
    kept = without(kept, [each.path for each in kept.dimensions if not _reachable(each, kept, arm)])
    lacking = [each.path for each in kept.dimensions if not _is_field(each, kept, arm)]
    for path in lacking:
        if arm.draft.is_baseline:
            faults.add(_lacks(arm, path), *dimension_keys(path, search), about=("lacks", path))
        elif not faults.has_told("lacks", path):
            remedy = f". Add {path} to the arm's drop"
            faults.add(_lacks(arm, path) + remedy, "arms", arm.draft.label)
    return Searched(without(kept, lacking), tuple(path for path in common.paths if path not in kept.paths))


def _reachable(dimension: Dimension, space: Space, arm: Resolved) -> bool:
    """Whether the conditions can hold: on a searched field they may, on a setting they do or do not."""
    free = [each for each in dimension.when if each.path not in space.paths]
    return exists(Dimension(dimension.path, dimension.domain, tuple(free)), {}, arm.system.settings)


def _is_field(dimension: Dimension, space: Space, arm: Resolved) -> bool:
    """Whether the arm's task, model or training has the field, with the conditions met."""
    met = condition_values(dimension, space)
    settings = _assigned(arm.system.settings, met)
    return settings is not None and lookup(settings, dimension.path) is not MISSING


def _lacks(arm: Resolved, path: str) -> str:
    settings = arm.system.settings
    parents = path.split(".")
    for length in range(2, len(parents)):
        parent = ".".join(parents[:length])
        value = lookup(settings, parent)
        if value is not MISSING and not isinstance(value, Mapping):
            reason = f"{arm.draft.name} has no {path}: its {parent} is {shown(value)}"
            break
    else:
        known = [field for field, _ in leaves(settings) if field.startswith(f"{parents[0]}.")]
        reason = f"{arm.draft.name} has no field {path}. {hint(path, known)}"
    return reason


def check_conditions(arms: Sequence[Resolved], search: Search, faults: Faults) -> None:
    """A range under `also` that depends on a field of no arm would be left out of every search in silence."""
    searched = common_space(search).paths
    fields = dict.fromkeys(path for arm in arms for path, _ in leaves(arm.system.settings))
    for dimension in search.also:
        for condition in dimension.when:
            path = condition.path
            if path in searched or any(_may_be(path, arm.system.settings) for arm in arms):
                continue
            known = [field for field in fields if field.partition(".")[0] == path.partition(".")[0]]
            faults.add(
                f"depends on {path}, a field of no arm. {hint(path, known)}",
                *dimension_keys(dimension.path, search),
                "when",
            )


def _may_be(path: str, settings: Mapping[str, Any]) -> bool:
    """Whether the field is there, or would be if a part that is null were not."""
    parents = [path.rsplit(".", cut)[0] for cut in range(1, path.count("."))]
    return lookup(settings, path) is not MISSING or any(lookup(settings, each) is None for each in parents)


def dimension_keys(path: str, search: Search) -> Keys:
    """Where the spec asks for the dimension at `path`."""
    if any(each.path == path for each in search.also):
        return ("search", "also", path)
    found = [place for place, name in enumerate(search.spaces) if path in catalog.load(name).paths]
    return ("search", "spaces", found[-1])


def check_bounds(arm: Resolved, space: Space, search: Search, faults: Faults) -> None:
    """Note every end of a range and every choice, alone and together, that the trainables would refuse."""
    settings = arm.system.settings
    bad: set[str] = set()
    for dimension in space.dimensions:
        for value in ends(dimension.domain):
            assignment = {**condition_values(dimension, space), dimension.path: value}
            problem = _refusal(
                settings, assignment, space, build=dimension.path.startswith(("model.", "task."))
            )
            if problem:
                bad.add(dimension.path)
                faults.add(
                    f"{arm.draft.name} cannot be trained with {dimension.path} = {shown(value)}: {problem}",
                    *dimension_keys(dimension.path, search),
                    about=("bounds", dimension.path, repr(value), problem),
                )
    if bad:
        return
    for assignment in _corners(space):
        if problem := _refusal(settings, assignment, space, build=False):
            drawn = ", ".join(f"{path} = {shown(value)}" for path, value in assignment.items())
            faults.add(f"{arm.draft.name} cannot be trained with {drawn}: {problem}", "search")
            return


def ends(domain: Domain) -> tuple[Value, ...]:
    """The ends of a range, every choice, the fixed value."""
    match domain:
        case Choice(values):
            return values
        case Fixed(value):
            return (value,)
        case _:
            return (domain.low, domain.high)


def _refusal(settings: Mapping[str, Any], assignment: Assignment, space: Space, *, build: bool) -> str | None:
    """Why `settings` with `assignment` cannot be trained; None if they can, or are never drawn."""
    try:
        if not all(admits(each, assignment, settings) for each in space.constraints):
            return None
    except TypeError as error:
        return str(error)
    assigned = _assigned(settings, assignment)
    if assigned is None:
        return None
    found = checked(assigned)
    if isinstance(found, list):
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return found[0].message + more
    if build:
        try:
            build_model(found.model, found.shape, 0, torch.device("meta"))
        except ValueError as error:
            return str(error)
    return None


def _corners(space: Space) -> Iterator[dict[str, Value]]:
    """Ends of all dimensions at once, or of every two where that would be too many."""
    dimensions = space.dimensions
    count = prod(len(ends(each.domain)) for each in dimensions)
    groups: Iterable[tuple[Dimension, ...]] = (
        [dimensions] if count <= CORNERS_MAX else combinations(dimensions, 2)
    )
    for group in groups:
        for values in product(*(ends(each.domain) for each in group)):
            drawn = dict(zip([each.path for each in group], values, strict=True))
            if _consistent(group, drawn):
                yield {**_all_conditions(group, space), **drawn}


def _consistent(group: Iterable[Dimension], drawn: Assignment) -> bool:
    """Whether no dimension of the group is there against its own conditions."""
    return all(
        drawn[condition.path] in condition.values
        for dimension in group
        for condition in dimension.when
        if condition.path in drawn
    )


def _all_conditions(group: Iterable[Dimension], space: Space) -> dict[str, Value]:
    return {path: value for dimension in group for path, value in condition_values(dimension, space).items()}


def condition_values(dimension: Dimension, space: Space) -> dict[str, Value]:
    """An assignment of the searched fields that `dimension` depends on under which it exists."""
    met: dict[str, Value] = {}
    for condition in dimension.when:
        if condition.path in space.paths:
            met |= condition_values(space[condition.path], space)
            met[condition.path] = condition.values[0]
    return met


def _assigned(settings: Mapping[str, Any], assignment: Assignment) -> dict[str, Any] | None:
    changed = dict(settings)
    try:
        for path, value in assignment.items():
            changed = with_value(changed, path, value)
    except ValueError:
        return None
    return changed
