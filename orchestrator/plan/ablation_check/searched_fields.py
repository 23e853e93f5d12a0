"""Check that every searched field has an effect in an arm, and affects at least one objective.

Early exit preserves every result. Decoding settings do not affect metrics without written answers. Trials
that differ only in such a field are equal, so the choice among them is arbitrary.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from orchestrator.plan.ablation_check.acting_settings import Sweep
from orchestrator.plan.ablation_check.differences import FIRST, LEARNS, differ, differences, draws
from orchestrator.plan.ablation_check.passes import LENGTH, made_batch
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.faults import Faults
from orchestrator.plan.space_check.dimensions import one_value
from orchestrator.plan.space_check.metrics import VALID, written
from orchestrator.plan.space_check.spaces import (
    assigned,
    common_space,
    condition_values,
    dimension_keys,
    ends,
    may_exist,
)
from orchestrator.plan.training_code.settings import System, checked
from orchestrator.spec.types import Search
from search_spaces.algebra import without
from search_spaces.dimensions import Dimension, Fixed, Space, contains
from search_spaces.paths import MISSING, lookup, overlap, with_value
from search_spaces.wording import shown
from trainables.metrics import Metric, look_up
from trainables.training import evaluate, workload

NOTHING = "nothing"
WORK = frozenset({"layers run", "operations", "layers", "FLOPs"})
"""Differences that only affect the amount of computation."""


@dataclass(frozen=True, slots=True)
class SearchedArm:
    """An arm with its search space and search settings."""

    arm: BuiltInArm
    space: Space
    search: Search
    sweep: Sweep
    metrics: Sequence[Metric]


def check_dimensions(asked: SearchedArm, probe: Probe, faults: Faults) -> None:
    """Note dimensions without an effect in an arm, since they only make the search less thorough.

    Dimensions without an effect on any objective are noted once, for the baseline.
    """
    arm = asked.arm
    for dimension in asked.space.dimensions:
        if one_value(dimension, asked.search):  # reported already
            continue
        try:
            why = _in_vain(asked, dimension, probe)
        except ValueError:  # the ablation check reports arms that cannot be run
            continue
        if why and arm.request.is_baseline:
            faults.add(
                f"varies {dimension.path}, which changes {why} in {arm.name}",
                *dimension_keys(dimension.path, asked.search),
            )
        elif why == NOTHING:
            faults.add(
                f"searches {dimension.path}, which changes nothing in {arm.name}: "
                f"add {dimension.path} to the arm's drop",
                "arms",
                arm.request.label,
            )


def check_dropped(asked: SearchedArm, probe: Probe, faults: Faults) -> None:
    """Note a searched `train` field that an arm drops and does not set, although it has an effect there.

    A model or task field that stays as in the baseline may be the purpose of the arm. An arm that drops every
    dimension is skipped: its plan states that it is not searched.
    """
    arm, common = asked.arm, common_space(asked.search)
    if all(isinstance(each.domain, Fixed) for each in asked.space.dimensions):
        return
    for place, path in enumerate(arm.request.drop):
        tunes = path in common.paths and path.startswith("train.")
        if not tunes or any(overlap(path, each) for each in arm.request.changes):
            continue
        dimension, beside = common[path], without(common, [each for each in arm.request.drop if each != path])
        own = lookup(arm.system.settings, path)
        if own is MISSING or not may_exist(dimension, beside, arm):
            continue
        found = systems(arm, dimension, beside)
        with suppress(ValueError):  # an arm may drop values that cannot be run
            if len(found) == len(ends(dimension.domain)) and any(
                differ(probe, found[0], each, asked.sweep) for each in found[1:]
            ):
                faults.add(
                    f"must be what {arm.name} lacks or sets, or what changes nothing in it, got {path}, "
                    f"which acts there and would stay {shown(own)} while others are tuned: leave it out, or "
                    "drop all that is searched, for an arm that is not tuned",
                    *("arms", arm.request.label, "drop", place),
                    about=("dropped", arm.request.label, path),
                )


def systems(arm: BuiltInArm, dimension: Dimension, space: Space) -> list[System]:
    """Return the arm at every end of `dimension`, without systems that cannot be built."""
    return _at_ends(arm.system.settings, dimension, space)


def _in_vain(asked: SearchedArm, dimension: Dimension, probe: Probe) -> str | None:
    """Return the aspect that `dimension` changes instead of an objective; None if it changes an objective.

    Raises:
        ValueError: A system cannot be run.
    """
    found = systems(asked.arm, dimension, asked.space)
    if len(found) < 2 or _shows_at_once(asked.arm, dimension, found[-1], probe):
        return None
    objectives, differing = [each.metric for each in asked.search.objectives], False
    for first, *rest in chain([found], filter(None, _beside_others(asked, dimension))):
        for other in reversed(rest):
            if not asked.arm.request.is_baseline:
                # For other arms any effect suffices.
                if differ(probe, first, other, asked.sweep):
                    return None
            elif moves(asked, first, other, probe):
                return None
            else:
                differing |= differ(probe, first, other, asked.sweep)
    return f"no objective ({', '.join(objectives)})" if differing else NOTHING


def _shows_at_once(arm: BuiltInArm, dimension: Dimension, end: System, probe: Probe) -> bool:
    """Return whether one end of `dimension` differs in one pass from the unchanged arm."""
    own = lookup(arm.system.settings, dimension.path)
    if own is MISSING or isinstance(own, list | dict) or not contains(dimension.domain, own):
        return False
    if end.settings != with_value(arm.system.settings, dimension.path, lookup(end.settings, dimension.path)):
        return False
    one, other = probe.narrow_pair(arm.system, end)
    if dimension.path.startswith("model."):
        words = set(probe.measure(one, FIRST).unlike(probe.measure(other, FIRST)))
        return bool(words - WORK - {"depth"})
    return "gradient" in set(probe.measure(one, LEARNS).unlike(probe.measure(other, LEARNS)))


def moves(asked: SearchedArm, before: System, after: System, probe: Probe) -> bool:
    """Return whether some objective can differ between `before` and `after`.

    Raises:
        ValueError: A system cannot be run.
    """
    objectives = {each.metric for each in asked.search.objectives}
    counts_work = any(_counts_work(name, asked.metrics) for name in objectives)
    for words in differences(probe, before, after, asked.sweep):
        found = set(words)
        if "writing" in found and _written(before).isdisjoint(objectives):
            found.discard("writing")
        if found - WORK or (found and counts_work):
            return True
    return False


def _beside_others(asked: SearchedArm, dimension: Dimension) -> Iterator[list[System]]:
    """Yield `systems` for every end of every other dimension, instead of the arm's own value."""
    for draw in draws(asked.space, [dimension.path]):
        settings = assigned(asked.arm.system.settings, draw)
        if dimension.path not in draw and settings is not None:
            yield _at_ends(settings, dimension, asked.space)


def _at_ends(settings: Mapping[str, Any], dimension: Dimension, space: Space) -> list[System]:
    found = []
    for path, value in condition_values(dimension, space).items():
        settings = with_value(settings, path, value)
    for value in ends(dimension.domain):
        system = checked(with_value(settings, dimension.path, value))
        if isinstance(system, System):
            found.append(system)
    return found


def _written(system: System) -> set[str]:
    """Return the names of all metrics of written answers."""
    batch = made_batch(system.shape, min(LENGTH, system.shape.length_max))
    return {f"{VALID}/{name}" for name in written(system, batch)}


def _counts_work(name: str, metrics: Sequence[Metric]) -> bool:
    known = look_up(metrics, name)
    return known.moves_with == evaluate.SAVED or known in workload.metrics
